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
// A process has one ephemeral sequential node per lock path, however many of its goroutines want the lock.
// The node with the lowest number is the holder's. A waiting process watches its own node and the two
// nodes ahead of it. Nodes are granted the lock in the order of their creation.
//
// Other libraries can share a path: go-zookeeper's zk.Lock, Curator's InterProcessMutex, and kazoo with
// extra_lock_patterns=["lock-"] or [WithKazoo]. [tier.RWMutex] excludes Curator's
// InterProcessReadWriteLock. Caution: that lock ignores the nodes of a Mutex; use different paths.
// docs/interop.md in the repository has the full table.
//
// The names of nodes end in the number that the server gives them. What is before it:
//
//	_c_<uuid>-lock-     a mutex
//	_c_<uuid>-__WRIT__  a writer
//	_c_<uuid>-__READ__  a reader; one that was a writer keeps its uuid and number
//	_c_<uuid>-__lock__  the second node of a mutex or a writer, which WithKazoo makes
//	_c_<uuid>-__rlock__ the second node of a reader
//
// The uuid has version 8, and Curator's have version 4. A node with the content "__REVOKE__", or with "revoke" in its description, was
// asked to release the lock. Other content is for people only.
//
// # Moving from zk.Lock
//
// Package dropin has the methods of zk.Lock on the *zk.Conn that the program has: replace zk.NewLock by dropin.NewLock. [Dial] makes a
// connection of its own, and adds contexts, the lease and notice of loss. The locks of both and zk.Lock exclude each other on one
// path, so processes can move one at a time. While others on the path have one node per goroutine, use [tier.WithRounds] with Dial.
//
// # What is promised
//
// The server orders the nodes, so at most one is first. A holder learns of a loss when its lease ends on
// its own clock, which is a margin before the servers can grant the lock to another process. By default the
// margin is T/3, where T is the session timeout ([tier.WithLeaseTTL]). [tier.Hold.Lost] is closed then, and
// [tier.Hold.Err] returns the reason. A broken connection alone loses no lock: the lease goes on until its
// end. The node of a lost lock stays until the owner has released it or the margin is over, so the owner
// has time to stop.
//
// Caution: an operator who deletes the holder's node gives the lock to the next process at once. The holder
// learns of it when its server does, or up to T/6 after the grant if it got the lock without waiting.
//
// Nodes of cancelled acquisitions and lost replies are found by their unique names and deleted in the
// background, or end with the session. Missing parents are created as containers, which the server
// deletes when they are empty. On servers before 3.5 parents are plain nodes, and stay.
//
// # What it costs
//
// An uncontended acquisition takes one round trip and one write, or two round trips if the path does not
// exist yet. A release takes one round trip and one write. A transfer, from the release in one process to
// the grant in another, takes one round trip, however many processes wait. Concurrent requests for
// different paths are batched: a request may wait up to a quarter of a round trip and then leaves with
// others in one transaction. Package dropin, on the program's own connection, is slower.
//
// # Sequence overflow
//
// ZooKeeper numbers all nodes ever created below a path with 31 bits: enough for 25 days of a thousand
// transfers a second. Only a new path resets the numbers. From 2^30 on, tierlock therefore empties the
// queue and recreates the path. For at most T, processes that had the lock wait outside the queue. They are
// served in no particular order, TryAcquire and Contenders do not see them, and every holder counts as
// contended. Exclusion and growing tokens are kept.
//
// The path is recreated only if it is an unchanged container of this package, has no other children (such
// as a lock below it), may be deleted by this client, and becomes empty within T. Otherwise a warning is
// logged, and the process tries again after 2^20 more numbers. When the numbers are used up, acquisitions
// fail with [ErrSequenceExhausted].
//
// # Limits
//
// A process can be paused after it has checked [tier.Hold.Err] and before it writes. No lock service
// prevents that late write. Pass [tier.Hold.Token] to the resource and let it refuse lower tokens than the
// highest it has seen, or use [Multi] if the data is in the same ensemble. Tokens start lower again if the
// ensemble loses its data.
//
// # The lease
//
// Only a write that a quorum has accepted renews the lease. Answers to reads and pings do not count,
// because a partitioned follower or a deposed leader still sends them while the others end the session.
// The lease is counted from the latest request that the leader is then proven to have received. The
// heartbeat is a sync each T/8, followed by a write that changes nothing while a node is queued or held:
// one per process, however many locks it has.
//
// The lease therefore ends at least the margin before any server can grant the lock to another process,
// also in a partition between servers. This assumes:
//
//   - Clocks run at the same rate, except for a small part of the margin. The sleep of a suspended
//     machine counts; a pause of a virtual machine by its hypervisor does not (docs/promises.md).
//   - tickTime is at most T/4. Clients cannot read tickTime. It is usually 2 s; the client therefore logs
//     a warning if T is below 8 s, or if the server has raised T.
//   - All servers grant the same T.
//   - There are no observer masters, quorum oracles or local sessions.
//
// A holder keeps its lock through any outage of up to T - margin - T/4, less the time to reconnect. That
// takes two round trips, plus up to 1 s if all servers refuse, up to 1 s for each name that is not resolved,
// and up to min(T/6, 2 s) for each server that hangs.
//
//	T     margin   ticks up to   outage survived
//	8 s   2.7 s    2 s           3.3 s
//	10 s  3.3 s    2.5 s         4.2 s
//	15 s  5 s      3.75 s        6.2 s            (default)
//	30 s  10 s     7.5 s         12.5 s
//
// If a process dies, its locks stay taken for T. They can stay taken for 2 T if only the messages from the
// servers to a process are lost.
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
// In addition to the lines of [tier.WithLogger], zklock logs at level WARN: a server name cannot be resolved; the session timeout is too
// short for a safe lease; a lock path has used half of its sequence numbers and cannot be recreated; go-zookeeper/zk is not the tested
// version. At level INFO it logs children of a lock path that are not lock nodes.
package zklock
