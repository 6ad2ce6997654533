// Package etcdlock is the lock of package tier on etcd: the gate of the process in front, one
// key of the process behind it.
//
//	locks, err := etcdlock.New(client) // a *clientv3.Client that the program has
//	…
//	defer locks.Close()
//	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Release()
//	ctx = hold.Context(ctx) // ends if the lock is lost
//
// Package tier has the contract of registry, mutex and hold; here is what is particular to etcd.
//
// A process that wants the lock at path creates a key below path/, under the lease of the
// process. The key with the lowest create revision is the holder; the others wait. It is the
// layout of etcd's own concurrency.Mutex and of etcdctl lock, and this package and they
// exclude each other on the same path, in one queue. Keys that are put below path/ by hand
// count as contenders, too. A key with another slash in its name belongs to a lock below, and
// does not count here; concurrency.Mutex waits for it all the same.
//
// # What is promised
//
// At most one key is the first one; that is the word of etcd. A holder learns that it lost the
// lock no later than its lease ends, on the process's own monotonic clock, and a margin before
// etcd can give it to anybody else (a third of the TTL by default). A broken connection alone
// loses nothing: the lock is suspended until etcd answers again or the lease ends. A lost key
// stays until its owner has released it or the margin is over.
//
// No lease covers that somebody else deletes the key of a holder, as an operator may. The next
// contender then gets the lock at once, and the holder hears of it by its watch; if it was
// granted the lock without waiting, it begins to watch a sixth of the TTL after the grant.
//
// No key outlives its purpose. A transaction that is not answered is sent again, and then
// finds what it has done before; if nobody wants the lock any more, its key is deleted in the
// background. A server may execute a transaction late, after that delete or the release. So
// from the first one that is not answered until the lease ends, the process compares the keys
// of its lease with those that it wants, with each keep-alive, and deletes the others.
//
// # What it costs
//
// An acquisition is one transaction if nobody else is there, a release one delete, a requeue
// one transaction that deletes the one key and creates the other; each is one write to etcd. A
// try is one transaction, which writes nothing if somebody else is there.
//
// A process that waits for a lock, or has goroutines that wait while it holds the lock,
// watches the queue, and hears of each key that comes or goes below path/, those of locks
// below included. The way of a lock from one process to the next is the delete and the event,
// without a request. The watch begins before the look that it goes with: etcd serves watches
// from a past revision only each 100 ms, which is why concurrency.Mutex hands over so slowly.
//
// Beyond that there is a keep-alive each quarter of the TTL.
//
// # The lease
//
// It runs from when a keep-alive was sent that the leader has answered, for the TTL that etcd
// has granted, less the margin; the leader counts from when it got it, and a new leader begins
// anew. A holder keeps its lock through any outage of TTL - margin - TTL/4, less a request. It
// assumes that
//
//   - clocks run at the same rate, but for a small part of the margin; the monotonic clock of a
//     machine that is suspended stands still;
//   - the servers are 3.4.38, 3.5.23, 3.6.5 or later of these, or 3.7. Older ones may answer
//     the keep-alive of a lease that they have revoked with success (etcd issue 20615), and
//     before 3.4.31 and 3.5.13 a leader that had been stopped, and deposed meanwhile, renewed
//     and revoked leases by its own word (15247). The registry asks the servers at its
//     beginning, and warns on its logger.
//
// The client belongs to the program. It pings its connections only if clientv3.Config says so:
// set DialKeepAliveTime and DialKeepAliveTimeout to a few seconds, or one that has died
// without a word is used until the requests on it time out, each after a sixth of the TTL.
//
// # Client requests
//
// Each request has a deadline, of a sixth of the TTL and half a second at least. The client
// repeats reads and requests about leases by itself, and transactions only if they were not
// sent, but for two cases: an auth token that has expired, and an answer that says "cancelled"
// or "deadline exceeded" before the deadline. All that is sent may be repeated: keys are
// created on the condition that they are not there, and have names of their own.
//
// # What is not promised
//
// No lock service can keep a process that was stopped between looking and acting from acting
// late. Give [tier.Hold.Token] to the resource and let it refuse lower ones than the highest it has
// seen, or write with [Txn] if the data is in the same etcd. Tokens are
// create revisions; they do not outlive the data of the cluster, and a cluster that is
// restored from a backup starts lower again. What Contenders says of since when somebody queues
// is by the clock of that process, as etcd keeps no time.
package etcdlock
