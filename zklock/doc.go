// Package zklock is a distributed lock on ZooKeeper: one contender, one znode.
//
// A [Client] is the connection of a process, a [Lock] a path, and a [Node] an acquired
// lock. Acquiring creates an ephemeral sequential node below the path; the node with
// the lowest number is the holder, every other one watches only its nearest
// predecessor. Nodes are granted in the order in which they were created, whoever
// created them: go-zookeeper's zk.Lock, Curator's InterProcessMutex and (with
// extra_lock_patterns=["lock-"]) kazoo queue on the same path. [WithKazoo] is for kazoo
// as it comes. Both sides of Curator's InterProcessReadWriteLock ignore the nodes of this
// package, which waits for theirs: keep them on other paths. Who waits for whom is in
// docs/interop.md of the repository.
//
// The lock is not reentrant and gives each acquisition a node of its own. Package tier
// builds the lock for many goroutines of one process on top of it.
//
// # What is promised
//
// At most one node is at the head of the queue; that is the server's word. A holder
// learns that it lost the lock no later than its lease ends: [Node.Lost] is closed, and
// [Node.Err] says why. The lease runs from the send time of the newest request that the
// server answered, for the session timeout T less a margin (T/3 by default), on the
// process's own monotonic clock. While a lock is held the client asks at least every
// min(T/6, 2s). A broken connection alone loses nothing: the lock is suspended until
// the connection is back or the lease ends.
//
// No node outlives its purpose: when an acquisition is given up or a reply is lost, the
// node is found by its unique name and deleted in the background, or dies with its
// session. So does a parent that got no child: the server deletes an empty container only
// if it has ever had one. What stays is the parent of a process that is killed, or cut off
// from ZooKeeper until it ends, after it has created the parent and before the node: an
// empty container, about as old as the process's last acquisition, which may be deleted at
// any time. Parents are plain nodes, and stay, on servers before 3.5.
//
// # Worn paths
//
// Sequence numbers count all nodes ever created below a path, in 31 bits: 25 days of a
// thousand hand-overs a second. Only a new path sets them back. From 2^30 on, therefore,
// whoever has had a turn stays out of the queue, for T at most, until it is empty and the
// path has been deleted, which whoever sees it first does; then all queue again. Meanwhile
// those outside are served in no order and are not in the queue that TryAcquire and
// Contenders look at, and every node counts as contested. The head of the queue remains the
// server's word, and tokens go on growing.
//
// Only a container is deleted that this package has made and nobody has changed since. Where
// there is another node, a child that is no lock node (such as a lock below), or no
// permission, and where the queue is not empty within T, because of other libraries or long
// turns, a WARN says so; the process queues as before and tries again when the next 2^20
// numbers are used up. If nothing helps, all get [ErrSequenceExhausted] in the end.
//
// # What is not promised
//
// No lock service can keep a process that was stopped between looking at [Node.Err] and
// acting from acting late. Give [Node.Token] to the resource and let it refuse lower
// tokens than the highest it has seen, or write through [Node.Multi] if the data is in
// the same ensemble. Tokens do not outlive the ensemble's data; see there.
//
// The lease rests on assumptions: clocks run at nearly the same rate (a suspended
// machine's monotonic clock stands still), and the margin covers what the ensemble may
// take to agree that a session was heard of. A server forwards that to its leader every
// half tick, so a crash of one costs up to that. A server that is cut off from the
// leader goes on answering for syncLimit ticks; to cover that too, the margin must be
// at least (syncLimit+1.5) ticks, which is 13 s with the usual syncLimit 5 and tickTime
// 2000.
//
//	T     margin   covers
//	10 s  3.3 s    one server; crash of a server or of the leader
//	15 s  5 s      the same, with more patience for pauses (default)
//	30 s  14 s     also a partition between servers, usual settings; heartbeats keep 14 s of lease
//	40 s  13.3 s   the same with the default margin
package zklock
