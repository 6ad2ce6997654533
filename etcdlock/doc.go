// Package etcdlock has the locks of package tier on etcd. Each process has one key per lock, however many of its goroutines wait.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:            []string{"127.0.0.1:2379"},
//		DialKeepAliveTime:    3 * time.Second,
//		DialKeepAliveTimeout: 3 * time.Second,
//	})
//	…
//	defer client.Close()
//	locks, err := etcdlock.New(ctx, client)
//	…
//	defer locks.Close()
//	return locks.Mutex("/locks/report").Do(ctx, func(ctx context.Context) error {
//		return report(ctx) // one at a time in all processes; ctx ends if the lock is lost
//	})
//
// Package tier documents the lock, which is the same on every store. This page documents what etcd adds.
//
// A process that wants the lock at path creates a key below path/, under its lease. The key with the lowest create revision is the
// holder's, and that revision is the fencing token. concurrency.Mutex of etcd's client and etcdctl lock use the same layout: on one
// path all of them exclude each other, in one queue. Any other key put directly below path/ counts as a queue entry, too.
// Caution: concurrency.Mutex at path also waits for the keys of locks below path. Do not nest lock paths where you use both.
//
// # Readers and writers
//
// Readers at the head of the queue hold the lock together. Writers, [tier.Mutex] and concurrency.Mutex exclude them.
//
// [tier.Mutex.Revoke] writes the request to the keys of the holders. It needs the permission to write there. For keys of other programs
// the error wraps [errors.ErrUnsupported].
//
// # Permits
//
// A [tier.Semaphore] at path is a queue of its own, below path//permits/. It is independent of the lock at path, and no other library
// shares it. The number of permits is the one that [tier.Semaphore.SetPermits] stored; if there is none, the one in the keys of the queue.
// A process that gives another number follows it. A foreign key in that queue counts as an entry that wants all permits, or blocks the
// queue with an error that names the key.
//
// # What is promised
//
// etcd decides which key is first, so there is one holder. The key of a lost lock stays until the owner has released it or the margin is
// over, so the owner has time to stop.
//
// Caution: an operator who deletes the holder's key gives the lock to the next process at once. The holder learns of it through its
// watch. If the lock was granted at once, the watch begins a sixth of the TTL after the grant.
//
// Keys of cancelled acquisitions and lost answers are deleted in the background, and end with the lease at the latest.
//
// # What it costs
//
//   - An uncontended acquisition, a release, a requeue: one transaction and one write each. A transfer to another process is the release
//     and one watch event.
//   - TryAcquire: one transaction, without a write if the lock is taken. For a reader behind a downgraded writer: two.
//   - A downgrade: one write. Revoke: one read, and one write per holder.
//   - Acquiring permits: one transaction; giving some back: one. Each reads the whole queue of the semaphore.
//   - A heartbeat each quarter of the TTL, however many locks the process has.
//
// A waiting process, or one with waiting goroutines, watches the queue and receives an event for each key that comes or goes below
// path/. The time per event grows with the length of the queue times the entries of the process in it. For many permits, acquire them
// with one Acquire, or use several semaphores.
//
// Until compaction, etcd keeps tombstones of deleted keys, and each read of a queue skips them. The package uses its key names again;
// still, enable compaction (--auto-compaction-retention).
//
// # The lease
//
// The lease runs for the granted TTL less the margin, counted from when the process sent the newest answered keep-alive. A holder keeps
// its lock through any outage of up to TTL - margin - TTL/4, less one request.
//
// Use etcd 3.7, or 3.4, 3.5 and 3.6 from 3.4.38, 3.5.23 and 3.6.5 on. Older servers may answer the keep-alive of a revoked lease with
// success (etcd issue 20615), or let a deposed leader revoke leases (15247). The logger gets a warning about them.
//
// Set DialKeepAliveTime and DialKeepAliveTimeout in clientv3.Config to a few seconds. Otherwise a dead connection is used until requests
// time out, each after a sixth of the TTL. With a user name and a password, each keep-alive authenticates, and the server hashes the
// password: choose a TTL that leaves time for that.
//
// Caution: if another program puts to a key of the lock without clientv3.WithIgnoreLease, the key loses its lease and outlives a process
// that dies.
//
// # Limits
//
// A process can be paused after it has checked the lock and before it writes. Pass [tier.Hold.Token] to the resource, or use [Txn] if the
// data is in the same etcd. Tokens grow while the cluster keeps its data; a cluster restored from a backup starts lower again.
//
// Caution: after a restore from a backup, two processes can hold a lock until the former holder next renews its lease, up to a quarter of
// the TTL later. A restored etcd has no grace period. Keep etcd stopped for a whole TTL before you restore it, or revoke all leases of the
// backup first. A process notices a restore with its next keep-alive: holders whose key is missing lose the lock, waiters queue again,
// and released keys that are back are deleted. If the restored cluster has the same raft term and cluster ID and a higher revision, a
// process notices within two thirds of the TTL, and released keys that are back stay until the lease ends.
//
// Caution: a leader that is stopped for three quarters of the TTL or longer and then resumes may revoke leases that its successor has
// renewed. For three ticks of the leader (0.3 s by default) another process can get such a lock before its holder knows. The holder
// learns of it when its server does.
//
// [tier.Mutex.Contenders] shows the time at which a process queued by that process's clock, because etcd stores no time.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] sets the TTL of the etcd lease, in whole seconds. The server raises a TTL below one and a half times its election
// timeout (2 s by default), and the logger gets a warning.
package etcdlock
