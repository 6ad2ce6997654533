// Package zklock provides the locks of package tier on ZooKeeper.
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
// Package tier documents the lock, which is the same on every store. This page documents only what is special about ZooKeeper.
//
// A process has one ephemeral sequential node per lock path, however many of its goroutines want the lock. The node with the lowest number
// belongs to the holder. A waiting process watches its own node and the two nodes ahead of it. Processes get the lock in the order in
// which their nodes were created.
//
// Other libraries can share a path: go-zookeeper's zk.Lock, Curator's InterProcessMutex, and kazoo with extra_lock_patterns=["lock-"] or
// [WithKazoo]. A [tier.RWMutex] and Curator's InterProcessReadWriteLock on one path exclude each other. Caution: an
// InterProcessReadWriteLock ignores the nodes of a Mutex. Use different paths for a Mutex and an InterProcessReadWriteLock. docs/interop.md
// in the repository has the full table.
//
// The name of a node ends with the number that the server assigns. The part before the number is:
//
//	_c_<uuid>-lock-     a mutex
//	_c_<uuid>-__WRIT__  a writer
//	_c_<uuid>-__READ__  a reader; a downgraded writer keeps its uuid and number
//	_c_<uuid>-__lock__  the second node of a mutex or a writer, which WithKazoo makes
//	_c_<uuid>-__rlock__ the second node of a reader
//
// The uuid has version 8; uuids of Curator have version 4. If the data of a node is "__REVOKE__", or its JSON contains "revoke", the
// process was asked to release the lock. Other data is only for people.
//
// # Moving from zk.Lock
//
// Package dropin has the methods of zk.Lock and uses the *zk.Conn of your program: replace zk.NewLock with dropin.NewLock. [Dial] opens
// its own connection, and adds contexts, leases and notice of loss. Locks of dropin, of Dial and of zk.Lock on one path exclude each
// other, so you can move processes one at a time. While other processes on the path have one node per goroutine, pass [tier.WithRounds] and
// [tier.WithStrictOrder] to Dial.
//
// # What is promised
//
// The server numbers the nodes, so at most one node is first in the queue. A holder measures its lease by its own clock. The lease ends one
// margin before the servers can grant the lock to another process. By default the margin is T/3, where T is the session timeout
// ([tier.WithLeaseTTL]). At the end of the lease [tier.Hold.Lost] is closed, and [tier.Hold.Err] returns the reason. A broken connection
// alone does not lose a lock: the lock stays held until its lease ends. The node of a lost lock stays until its owner has released the
// lock, or until the margin is over. Therefore the owner has time to stop.
//
// Caution: an operator who deletes the holder's node gives the lock to the next process at once. The holder learns of the deletion when the
// server of its connection does. If the holder got the lock without waiting, it may learn of the deletion only T/6 after the grant.
//
// If an acquisition is cancelled or its reply is lost, its node may remain in ZooKeeper. The package finds such nodes by their unique
// names, and deletes them in the background. If that fails, the server deletes the node when the session ends. Missing parents are created
// as containers, which the server deletes when they are empty. On servers before 3.5, parents are plain nodes and are not deleted.
//
// # What it costs
//
// An uncontended acquisition takes one round trip and one write, or two round trips if the path does not exist yet. A release takes one
// round trip and one write. A transfer, from the release in one process to the grant in another, takes one round trip, however many
// processes wait. Concurrent requests for different paths are sent in batches. A request may wait up to a quarter of a round trip for other
// requests, and is then sent together with them in one transaction. Locks of package dropin, which uses the program's connection, are
// slower.
//
// # Sequence overflow
//
// ZooKeeper numbers all nodes ever created below a path with 31 bits, which is enough for 25 days of a thousand transfers a second. The
// numbers start again only if the path is recreated. Therefore, from number 2^30 on, tierlock empties the queue and recreates the path.
// This takes at most T. During this time, processes that want the lock again wait outside the queue, and get the lock in no particular
// order. TryAcquire and Contenders do not see these processes. Each holder is notified that another process waits ([tier.Hold.Contended]).
// At most one process still holds the lock, and tokens still grow.
//
// The path is recreated only under four conditions. The path is an unchanged container of this package. The path has no other children,
// such as a lock below it. This client may delete the path. The path becomes empty within T. If one of these conditions is not met, a
// warning is logged, and the process tries again after 2^20 more numbers. When the numbers are used up, acquisitions fail with
// [ErrSequenceExhausted].
//
// # Limits
//
// A process can be paused after it has checked [tier.Hold.Err] and before it writes. No lock service prevents this late write. Pass
// [tier.Hold.Token] to the resource, and let the resource refuse any token that is lower than the highest token it has seen. If the data
// is in the same ensemble, use [Multi] instead. If the ensemble loses its data, tokens start low again.
//
// # The lease
//
// Only a write that a quorum has accepted renews the lease. Answers to reads and pings do not renew the lease. A server without a
// connection to the leader, or a former leader, may still send such answers while the other servers end the session. The lease starts at
// the latest request that the leader is proven to have received. A process sends a heartbeat every T/8, however many locks it has. Each
// heartbeat is a sync request. While the process has a node in a queue, it sends a write that changes nothing after each sync.
//
// Therefore the lease ends at least one margin before any server can grant the lock to another process, also during a partition between
// servers. This promise has four assumptions:
//
//   - Clocks run at the same rate; the margin covers small differences. The lease counts the sleep of a suspended machine, but not a pause
//     of a virtual machine by its hypervisor (docs/promises.md).
//   - tickTime is at most T/4. Clients cannot read tickTime. The usual tickTime is 2 s. Therefore the client logs a warning if T is below
//     8 s, or if the server has raised T.
//   - All servers grant the same T.
//   - There are no observer masters, quorum oracles or local sessions.
//
// A holder keeps its lock through any outage of up to T - margin - T/4, less the time to reconnect. Reconnecting takes two round trips.
// Reconnecting takes up to 1 s more if all servers refuse, up to 1 s for each name that cannot be resolved, and up to min(T/6, 2 s) for
// each server that hangs.
//
//	T     margin   ticks up to   outage survived
//	8 s   2.7 s    2 s           3.3 s
//	10 s  3.3 s    2.5 s         4.2 s
//	15 s  5 s      3.75 s        6.2 s            (default)
//	30 s  10 s     7.5 s         12.5 s
//
// If a process dies, its locks are free T later. If a network fault drops only the messages from the servers to a process, its locks may be
// free only 2 T later.
//
// # Restored data
//
// Locks survive any event that keeps the ensemble's data. If an operator deletes the data of all servers, or sets them back to a backup or
// a snapshot, clients notice the loss of data in these cases:
//
//   - If the data of a server are older than what the client has seen, the server refuses the client. After T without a connection the
//     client abandons its session, and after 4 T it connects as a new client. All leases have ended by then.
//   - If the restored data do not contain the session, the server reports the session as expired, and all locks are lost at once.
//   - If the restored data contain the session, the servers resume the session. They do not refuse the client, because a newly elected
//     leader starts with a transaction id above all ids that the client has seen. The client then reads each held node at once. If a node
//     is missing, its lock is lost.
//
// In these cases clients do not notice the loss of data:
//
//   - If the restored data lack the node of a holder, the ensemble may grant the lock to another process. The holder still considers the
//     lock held until it resumes its session, or until its lease ends.
//   - If a node was released after the backup, the restored data contain it again. If its session is resumed, the node stays in the queue
//     until the process ends, or until an operator removes the node with "tierlock break".
//   - On a single server, tokens start lower again; see [tier.Hold.Token].
//
// Caution: before you start servers with older data, stop every process that holds or waits for locks. Start the processes again when the
// servers are up.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] sets the session timeout that the client requests. The server limits the session timeout to between 2 and 20 ticks;
// a tick is 2 s by default. A safe lease needs at least four ticks. Therefore the client logs a warning for a session timeout below 8 s.
//
// # Log lines
//
// In addition to the lines of [tier.WithLogger], zklock logs four warnings: a server name cannot be resolved; the session timeout is too
// short for a safe lease; a lock path has used half of its sequence numbers and cannot be recreated; the version of go-zookeeper/zk is not
// the tested one. At level INFO it logs children of a lock path that are not lock nodes.
package zklock
