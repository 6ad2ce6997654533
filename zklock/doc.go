// Package zklock has the locks of package tier on ZooKeeper.
//
//	locks, err := zklock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181/app")
//	if err != nil {
//		return err
//	}
//	defer locks.Close()
//	return locks.Mutex("/locks/report").Do(ctx, func(ctx context.Context) error {
//		return report(ctx) // one at a time in all processes; ctx ends if the lock is lost
//	})
//
// Package tier documents the lock, which is the same on every store. This page documents what ZooKeeper adds.
//
// A process has one contender per lock path, however many of its goroutines want the lock. The contender is
// an ephemeral sequential node below the path. The node with
// the lowest number is the holder; every other process watches the two nodes right ahead of its own,
// and its own. Nodes are granted in the order in which they were created, whoever
// created them: go-zookeeper's zk.Lock, Curator's InterProcessMutex and (with
// extra_lock_patterns=["lock-"]) kazoo queue on the same path. [WithKazoo] is for kazoo
// without that setting. The nodes of the reader/writer lock of package tier exclude those of
// Curator's InterProcessReadWriteLock, which ignores the nodes of a mutex: keep the latter on
// other paths. docs/interop.md in the repository says who waits for whom.
//
// The names of nodes end in the number that the server gives them. What is before it:
//
//	_c_<uuid>-lock-     a mutex
//	_c_<uuid>-__WRIT__  a writer
//	_c_<uuid>-__READ__  a reader; one that was a writer keeps its uuid and number
//	_c_<uuid>-__lock__  the second node of a mutex or a writer, which WithKazoo makes
//	_c_<uuid>-__rlock__ the second node of a reader
//
// The uuid is of version 8, which tells our nodes from Curator's. A node with the content "__REVOKE__", or with "revoke" in its
// description, is asked to give the lock up; otherwise the content is for people.
//
// # Moving from zk.Lock
//
// Package dropin has the methods of zk.Lock on the *zk.Conn that the program has: replace zk.NewLock by dropin.NewLock. [Dial] makes a
// connection of its own, and adds contexts, the lease and notice of loss. The locks of both and zk.Lock exclude each other on one
// path, so processes can move one at a time. While others on the path have one node per goroutine, use [tier.WithRounds] with Dial.
//
// # What is promised
//
// At most one node is at the head of the queue: the server decides. A holder
// learns that it lost the lock no later than its lease ends, on the process's own
// clock, and a margin before the servers can give it to anybody else (T/3 of the
// lease TTL T by default, which ZooKeeper calls the session timeout and [tier.WithLeaseTTL] sets): [tier.Hold.Lost] is closed, and
// [tier.Hold.Err] says why. A broken
// connection alone loses nothing: the lock is suspended until the connection is back or
// the lease ends. A lost node stays until its owner has released it or the margin is over.
//
// No lease protects against somebody else deleting the holder's node, as an operator may. The
// next contender then gets the lock at once. The holder hears of it when its server does, or
// up to T/6 after the grant if it got the lock without waiting.
//
// No node outlives its purpose. When an acquisition is given up or a reply is lost, the
// node is found by its unique name and deleted in the background, or dies with its
// session. Missing parents are created in one transaction with the node, as containers, which the
// server deletes when they are empty. On servers before 3.5 parents are plain nodes, and stay.
//
// # What it costs
//
// Over a connection made by [Dial], an acquisition takes one round trip if nobody else is
// there, or two if the path does not exist yet: requests that belong together are sent
// together. A release takes one, and so does a hand-over, from the release in one process to
// the grant in another, however many are waiting. An acquisition is one write, apart from
// missing parents; a release is one, and so is a requeue. What a client asks for about many
// paths at the same time waits for company, for a quarter of a round trip at most, and leaves
// as one write. Package dropin uses a connection made elsewhere, which is slower.
//
// # Sequence overflow
//
// Sequence numbers count all nodes ever created below a path, in 31 bits: enough for 25 days of
// a thousand hand-overs a second. Only a new path starts them again. From 2^30 on, therefore,
// whoever has had a turn stays out of the queue, for T at most, until the queue is empty and
// somebody has deleted the path. Then all queue again. Meanwhile those outside are served in no
// particular order, TryAcquire and Contenders do not see them, and every node counts as
// contended. The head of the queue remains the server's decision, and tokens keep growing.
//
// Only a container is deleted that this package has made and nobody has changed since. The
// path stays if it is another node, if it has a child that is no lock node (such as a lock
// below), if the permission is missing, or if the queue is not empty within T, because of other
// libraries or long turns. A WARN then says so; the process queues as before, and tries again
// when the next 2^20 numbers are used up. If nothing helps, everybody gets
// [ErrSequenceExhausted] in the end.
//
// # What is not promised
//
// No lock service can keep a process that was stopped between looking at [tier.Hold.Err] and
// acting from acting late. Give [tier.Hold.Token] to the resource and let it refuse lower
// tokens than the highest it has seen, or write through [Multi] if the data is in
// the same ensemble. Tokens do not outlive the ensemble's data; see there.
//
// # The lease
//
// An answer alone proves little. A follower that is cut off from the others goes on
// answering reads and pings, and so does a deposed leader, while the others end the
// session and give the lock away. So only a write that a quorum agreed on renews the
// lease, and the lease runs from the latest request that the leader is then certain to have
// heard of, not from the write itself (internal/zknode/DESIGN.md in the repository has the argument). The heartbeat is a sync each
// T/8, and behind it, while a node is queued or held, a write that checks the node and
// changes nothing: one per process, however many locks it has.
//
// The lease then ends at least the margin before any server can give the lock away, whether
// the holder, a server or a link hangs, stops or breaks, and in a partition between servers
// as well. It assumes that
//
//   - clocks run at the same rate, but for a small part of the margin. The sleep of a suspended
//     machine counts; the time for which a hypervisor pauses a virtual one does not (docs/promises.md);
//   - the servers' tickTime is at most a quarter of T. They do not tell it. It is 2 s nearly
//     everywhere, so the client warns on its logger about a T below 8 s, and about one that
//     the server has raised: its least is two ticks;
//   - all servers grant the same T: a handshake whose answer gets lost may have shortened it;
//   - the client's server has a vote, or observes the leader directly: no observer masters,
//     no quorum oracles, no local sessions.
//
// A holder keeps its lock through any outage of T - margin - T/4, less two round trips and
// what it takes to connect again: up to 1 s when all servers refuse, up to 1 s for each name that
// the name service does not answer for, and up to min(T/6, 2 s) for each server that hangs.
//
//	T     margin   ticks up to   outage survived
//	8 s   2.7 s    2 s           3.3 s
//	10 s  3.3 s    2.5 s         4.2 s
//	15 s  5 s      3.75 s        6.2 s            (default)
//	30 s  10 s     7.5 s         12.5 s
//
// T is also how long a lock stays taken when its process dies, and it may take twice that
// if only what the servers send gets lost.
//
// # Restored data
//
// Locks survive whatever keeps the ensemble's data. If an operator deletes the data of all servers, or sets them back to a backup or
// a snapshot, this is noticed:
//
//   - A server that is behind what the client has seen turns it away. After T without a connection the client gives its
//     session up, and after 4 T it presents itself as new. All leases have ended by then.
//   - Restored data that do not know the session make the server say so: all locks are lost at once.
//   - Restored data may know the session, and an ensemble that elects a leader begins with a transaction id above all that
//     the client has seen. The session is then resumed, and each held node is read at once: what is missing is lost.
//
// This is not noticed:
//
//   - Until then, or until its lease ends, the holder of a node that the data have lost believes in its lock, while the
//     ensemble may grant it to another process.
//   - A node that was released after the backup is back. If its session was resumed, the node stays in the queue until that
//     process ends, or an operator removes it with "tierlock break".
//   - Tokens of a single server start lower again; see [tier.Hold.Token].
//
// Caution: before servers start on older data, stop every process that holds or waits for locks, and start it again
// when the servers are up.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] sets the session timeout to ask for. The server bounds it to 2 to 20 of its ticks (of 2 s by default), and the lease
// needs four of them: the client logs a warning for less than 8 s.
//
// # Log lines
//
// Besides what [tier.WithLogger] lists, ZooKeeper logs at level WARN: the connection cannot be made, or is away for longer than a
// third of the session timeout; some of the servers cannot be looked up; the servers are configured so that the lease is not safe;
// another version of the client library than the tested one is linked. Children of a lock path that are no lock nodes are logged at
// level INFO.
package zklock
