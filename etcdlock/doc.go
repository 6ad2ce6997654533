// Package etcdlock is the lock of package tier on etcd: each process queues with one key, however many of its goroutines wait.
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
// Package tier documents the lock, which is the same on every store. This is what is particular to etcd.
//
// A process that wants the lock at path creates a key below path/, under the lease of the process. The key with the lowest create
// revision is the holder; the others wait. Etcd's own concurrency.Mutex and etcdctl lock have the same layout: on one path all of
// them exclude each other, in one queue. Any other key put below path/ counts as a contender, too. A key with another slash in its
// name belongs to a lock below and does not count here, but concurrency.Mutex waits for it.
//
// # Readers and writers
//
// The key of a process that reads has a name that begins with read-. It is first once only such keys are ahead. Everybody else
// waits for it in turn: the writers of the lock, its mutexes, and concurrency.Mutex, which readers wait for, too.
//
// A writer whose process goes on reading can let the readers behind in: it writes to the value of its key that it reads now, and
// keeps its place, its token and its lease. It never writes again under that key, so it does no harm if another process learns of
// that late.
//
// To ask for a lock is to write to the values of the keys that have it, which their processes watch once somebody listens, or else
// a sixth of the TTL after the grant. Only keys of this package can be asked; for others, errors.ErrUnsupported is returned.
// Whoever asks needs the permission to write to the keys of others.
//
// # Permits
//
// A process that wants permits of a semaphore creates a key path//permits/N-…, where N is how many there are. No lock is there, as its
// path cannot have an empty component, so a lock at path is another queue. The value says how many permits the process wants, or
// has: in the order of the create revisions, a process has what it wants once that, with what all ahead want, is at most N. It only
// ever writes that it wants fewer. A number that was set is in the key path//permits//of and counts instead of N. Else N is that of the
// keys there, and a process that gives another number follows it. Nobody else's semaphore has this
// layout, and concurrency.Mutex at path waits for these keys as for those of locks below.
//
// A key that another program puts there counts as one that wants all permits. One without a number keeps everybody out, and errors name it.
//
// # What is promised
//
// Etcd decides which key is first, so there is one at most. A lost key stays until its owner has released it or the margin is over.
//
// The lease does not cover an operator who deletes the key of a holder. The next contender then gets the lock at once, and the
// holder hears of it by its watch, which begins a sixth of the TTL after a grant without waiting.
//
// No key outlives its purpose. A transaction that is not answered is sent again, and then finds what it did before; if nobody wants
// the lock any more, its key is deleted in the background. A server may execute a transaction late, after that delete or the
// release. So once a transaction has gone unanswered, and until the lease ends, the process lists the keys of its lease with each
// keep-alive and deletes those that it does not want.
//
// # What it costs
//
// An acquisition is one transaction if nobody is in the way, so for a reader also beside others, a release one delete, a requeue
// one transaction that deletes one key and creates another; each is one write to etcd. A try is one transaction, which writes
// nothing if somebody is in the way; for a reader beside a writer that has let readers in, it is two. A writer lets readers in with
// one write. To ask for a lock is a read, and a write for each key that has it.
//
// To acquire permits is one transaction, too, if enough are free, and to give some of them up, or all, another one. A try is one if
// too few are free, or nobody has any, and two beside others. Each but the last release reads the whole queue: a key or two for each
// process that has permits or waits for some.
//
// etcd remembers the name of each key that was deleted until its history is compacted, and whoever looks at a queue passes by all
// of them. So a process uses the names of its keys again. New ones come with each process and each lease, and for as long as a
// lease lasts after a request was not answered: let etcd compact its history (--auto-compaction-retention).
//
// A process that waits for a lock, or has goroutines that wait while it holds the lock, watches the queue, and hears of each key
// that comes or goes below path/, those of locks below included. A lock goes from one process to the next with a delete and its
// event, without another request. The watch begins before the queue is read: etcd serves watches from a past revision only every
// 100 ms, which is why concurrency.Mutex hands over so slowly.
//
// Besides these there is a keep-alive every quarter of the TTL, whose cost does not grow with the number of locks or permits.
//
// Each event of a queue costs a process time in proportion to its own contenders there times the length of the queue, as each contender
// learns how it stands. With many portions of one semaphore that delays each acquisition and release by any process. Take many permits
// with one Acquire, or use several semaphores.
//
// # The lease
//
// The lease runs from when the process sent the newest keep-alive that the leader has answered, for the TTL that etcd granted, less
// the margin; the leader counts from when it received it, and a new leader starts over. A holder keeps its lock through any outage
// of TTL - margin - TTL/4, less a request. This assumes that the servers are 3.7, or of 3.4, 3.5 and 3.6 at least 3.4.38, 3.5.23 and
// 3.6.5. Older ones may answer the keep-alive of a revoked lease with success (etcd issue 20615), and before 3.4.31 and 3.5.13 a leader
// that was stopped, and deposed meanwhile, could still renew and revoke leases (15247). New asks the servers in the background and warns
// on the logger.
//
// The client belongs to the program. It pings its connections only if clientv3.Config says so: set DialKeepAliveTime and
// DialKeepAliveTimeout to a few seconds, or a connection that has died silently is used until the requests on it time out, each
// after a sixth of the TTL. The client logs retries by itself; see Logger in clientv3.Config. With a user name and a password it
// authenticates for each keep-alive, for which the server hashes the password: choose a TTL that leaves room for that.
//
// Nobody else may put to a key of the lock, unless the lease is kept (clientv3.WithIgnoreLease): that takes it off the lease, so
// that it outlives a process that dies.
//
// # Client requests
//
// Each request has a deadline, of a sixth of the TTL and half a second at least. The client repeats reads and requests about leases
// by itself, and transactions only if they were not sent, but for two cases: an auth token that has expired, and an answer that
// says "cancelled" or "deadline exceeded" before the deadline. Any request may be repeated without harm: a key is created only if
// it is not there, deleted only if it is the one that was meant, and changed only if nobody has changed it since.
//
// # What is not promised
//
// A process that was stopped acts late, as package tier says. Give [tier.Hold.Token] to the resource, or write with [Txn] if the data is
// in the same etcd: it checks one lock, or all locks of a [tier.Bundle]. Tokens are create revisions: they grow for as long as the
// cluster keeps its data, and a cluster restored from a backup starts lower again.
//
// Caution: after a restore, two processes can hold a lock until the former holder next renews its lease, a quarter of the TTL later at
// most. A backup that is younger than the leases has them, but not the keys that were created since. A restored etcd has no grace
// period. To avoid this, keep etcd stopped for a whole TTL before you restore it, or revoke all leases of the backup first.
//
// A process notices a restore by an answer with a lower revision than it knew. It also compares revision, raft term and cluster ID with
// each keep-alive. If one of these differs, the process reads the keys of all its contenders before the keep-alive counts, in
// transactions of 64 reads. Holders whose key is missing lose the lock, waiters queue again, and released keys that are back are deleted.
// From then on the process lists the keys of its lease with each keep-alive. A restore to the same raft term and cluster ID whose
// revision has overtaken the known one is noticed only by the looks at the queue, within two thirds of the TTL; released keys that are back
// then stay until the lease ends.
//
// A leader that was stopped for three quarters of the TTL or longer, so that leases have ended by its clock, may still believe for
// three of its ticks (0.3 s by default) after it resumes that it leads, and have the leases revoked that it knows of, also those that
// its successor has renewed (15247, which newer servers have made rare, not impossible). Such a lock is given away before its holder
// can know; the holder hears of it when its server does.
//
// Contenders gives the time at which a process queued by the clock of that process, as etcd keeps no time.
//
// # Lease TTL
//
// [tier.WithLeaseTTL] sets the TTL of the etcd lease to ask for, in whole seconds. The server raises a TTL below one and a half times its
// election timeout (2 s by default), and the logger gets a warning. It also gets one about a server that is too old.
package etcdlock
