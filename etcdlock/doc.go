// Package etcdlock provides the locks of package tier on etcd. Each process has one key per lock, however many of its goroutines wait.
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
// Package tier documents the lock, which is the same on every store. This page documents only what is special about etcd.
//
// A process that wants the lock at path creates a key below path/, under its lease. The key with the lowest create revision belongs to the
// holder. This revision is the fencing token. concurrency.Mutex of etcd's client and the command etcdctl lock use the same layout. All
// three share one queue on a path and exclude each other. Any other key directly below path/ also counts as a queue entry. Caution:
// concurrency.Mutex at path also waits for the keys of locks below path, and for those of a semaphore at path. If you use
// concurrency.Mutex, do not nest lock paths.
//
// # Readers and writers
//
// Readers at the head of the queue hold the lock together. The names of their keys begin with read-. Writers, [tier.Mutex] and
// concurrency.Mutex exclude readers.
//
// [tier.Mutex.Revoke] writes the request to the keys of the holders, and needs the permission to write to these keys. For keys of other
// programs the error wraps [errors.ErrUnsupported].
//
// # Permits
//
// A [tier.Semaphore] at path has a separate queue, below path//permits/. The semaphore is independent of the lock at path, and no other
// library shares it. The number of permits is stored by [tier.Semaphore.SetPermits], in the key path//permits//of. If no number is stored,
// the number with which the names of the keys in the queue begin applies. A process that passes a different number to
// [tier.Registry.Semaphore] gets this number instead. If another program puts a key into the queue, the key counts as an entry that wants
// all permits, or blocks the queue with an error that names the key.
//
// # What is promised
//
// etcd decides which key is first, so a lock has only one holder. The key of a lost lock stays until its owner has released the lock, or
// until the margin is over. Therefore the owner has time to stop.
//
// Caution: an operator who deletes the holder's key gives the lock to the next process at once. The holder learns of the deletion through
// its watch. If the holder got the lock without waiting, the watch starts only a sixth of the TTL after the grant.
//
// If an acquisition is cancelled or its answer is lost, its key is deleted in the background. If that fails, etcd deletes the key when the
// lease ends.
//
// # What it costs
//
//   - An uncontended acquisition, a release, and a release that queues again cost one transaction with one write each. A transfer to
//     another process costs the release and one watch event.
//   - TryAcquire costs one transaction, without a write if the lock is taken. For a reader behind a downgraded writer, TryAcquire costs
//     two transactions.
//   - A downgrade costs one write. Revoke costs one read, and one write per holder.
//   - Acquiring permits costs one transaction, and releasing them costs one. TryAcquire costs two while other processes hold permits.
//     Except for the last release, each of these transactions reads the whole queue of the semaphore.
//   - A process sends one heartbeat every quarter of the TTL, however many locks it has.
//
// A waiting process watches the queue. A holder also watches the queue while goroutines of its process wait. A process that watches
// receives an event for each key that is created or deleted below path/. The time per event grows with the length of the queue, multiplied
// by the number of the process's entries in the queue. If you need many permits, acquire them with one Acquire, or use several semaphores.
//
// Until compaction, etcd keeps tombstones of deleted keys, and each read of a queue has to skip them. The package reuses its key names,
// which limits the number of tombstones. Nevertheless enable compaction (--auto-compaction-retention).
//
// # The lease
//
// The lease starts when the process sends a keep-alive that etcd answers. The lease lasts for the granted TTL less the margin. A holder
// keeps its lock through any outage of up to TTL - margin - TTL/4, less the duration of one request.
//
// Use etcd 3.7, or at least 3.4.38, 3.5.23 or 3.6.5 of the older series. Older servers may answer the keep-alive of a revoked lease with
// success (etcd issue 20615), or let a former leader revoke leases (issue 15247). For older servers, the package logs a warning.
//
// Set DialKeepAliveTime and DialKeepAliveTimeout in clientv3.Config to a few seconds. Otherwise the client uses a dead connection until
// its requests time out, each after a sixth of the TTL, and half a second at least. The client logs its retries itself: see Logger in
// clientv3.Config. If the client has a user name and a password, the server hashes the password at each keep-alive. Choose a TTL that
// leaves time for this hashing.
//
// Caution: if another program writes to a key of the lock without clientv3.WithIgnoreLease, the key loses its lease. The key then remains
// when its process dies, and blocks the lock.
//
// # Limits
//
// A process can be paused after it has checked the lock and before it writes. Pass [tier.Hold.Token] to the resource, or use [Txn] if the
// data is in the same etcd. Tokens grow as long as the cluster keeps its data. After a restore from a backup, tokens start lower again.
//
// Caution: after a restore from a backup, two processes can hold the same lock. The overlap ends when the former holder next renews its
// lease, up to a quarter of the TTL later. A restored etcd has no grace period. Keep etcd stopped for a whole TTL before you restore it, or
// revoke all leases of the backup first. A process notices a restore with its next keep-alive. Holders whose key is missing lose the lock,
// waiters queue again, and released keys that the backup contained are deleted. There is one exception. If the restored cluster has the
// same raft term and cluster ID, and a higher revision, a process notices the restore within two thirds of the TTL, and released keys of
// the backup stay until the lease ends.
//
// Caution: if a leader is stopped for three quarters of the TTL or longer and then resumes, it may revoke leases that its successor has
// renewed. For three ticks of the leader (0.3 s by default), another process can get such a lock before the holder learns of its loss. The
// holder learns of the loss when the server of its connection does.
//
// [tier.Mutex.Contenders] shows when a process queued, by the clock of that process, because etcd stores no time.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] sets the TTL of the etcd lease, in whole seconds. If the TTL is below one and a half times the server's election
// timeout (2 s by default), the server raises the TTL, and a warning is logged.
package etcdlock
