// Package tier is a distributed, reentrant lock for services in which many goroutines in several processes contend for the same resource.
// It works on ZooKeeper, etcd, PostgreSQL, MySQL and Redis.
//
// A [Registry] comes from the package of a store: zklock.Dial, etcdlock.New, pglock.New, pglock.NewAdvisory, mysqllock.New or
// redislock.New.
//
//	locks, err := zklock.Dial(ctx, "127.0.0.1:2181")
//	…
//	defer locks.Close()
//	job := locks.Mutex("/jobs/report")
//	err = job.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
//		return write(ctx, tier.HoldFrom(ctx, job).Token()) // the resource refuses lower tokens
//	})
//
// [Mutex.Acquire] waits for the lock and returns a [Hold]. [Mutex.TryAcquire] returns an error instead of waiting. [WithMaxWait] limits
// the wait of Acquire.
//
// Each process runs a local queue in front of the distributed lock. Only the goroutine at the head of the local queue competes in the
// store. Therefore a process has at most one queue entry per lock, called a contender, however many of its goroutines wait:
//
//	process A                        store                       process B
//	g3 → g2 → g1  ── one entry ──▶  [ A holds | B waits ]  ◀── one entry ──  g4 ← g5
//
// # Reentrancy and errgroups
//
// Go has no goroutine identity, so ownership follows the context. If [Mutex.Acquire] gets a context from [Hold.Context] or from
// [Mutex.Do], it joins the existing hold. With any other context it waits.
//
// Caution: goroutines that share such a context, for example in an errgroup, do not exclude each other, although each acquires the lock. If
// a goroutine has to compete for the lock, pass it the result of [WithoutHold]. Do not wait for that goroutine while you hold the lock. If
// a goroutine holds the lock and acquires it with another context, it deadlocks; after 10 s a warning is logged. [WithLeakDetection] also
// reports holds that were never released.
//
// Caution: a function that acquires the lock again may run while its caller is halfway through an update. The function then works with
// half-changed data, although it holds the lock. Inside a package, prefer functions whose documentation says that the caller must hold the
// lock.
//
// # What is promised
//
//   - Exclusion: while the lease of an owner is valid, no other process owns the lock. Inside a process, only one goroutine at a time owns
//     the lock, even after the lease has ended.
//   - Notice of loss: an owner learns that the lock is lost before the store can grant it to another process. The context ends with a cause
//     that wraps [ErrLost], [Hold.Lost] is closed, and [Hold.Err], [Hold.Release] and Do return the error.
//   - Order: processes get the lock in the order in which they queue. Goroutines of a process get the lock in the order of their calls.
//     While other processes wait, a process may hand the lock off among its own goroutines for 20 ms. [WithHandOff] sets another limit,
//     and [WithStrictOrder] turns local hand-offs off.
//   - Cleanup: queue entries of cancelled or failed acquisitions are deleted from the store. The entries of a dead process end with its
//     session.
//
// # Leases and outages
//
// A process measures its lease by its own clock. The lease ends one margin before the store can grant the lock to another process. By
// default the margin is a third of the TTL ([WithLeaseTTL], [WithLeaseMargin]). A broken connection alone does not lose a lock: the lock
// stays held until its lease ends. If the store answers again in time, the lease is renewed. During an outage, [Hold.Release] blocks for
// at most [WithReleaseTimeout]. The lease assumes that clocks run at the same rate; the margin covers small differences. The lease also
// counts the sleep of a suspended machine.
//
// Caution: the clocks of a virtual machine stop while its hypervisor pauses it. An owner on that machine learns of its loss too late.
// docs/promises.md lists which pauses the lease counts on which system.
//
// Caution: if an operator deletes the queue entry of an owner, the next process can hold the lock before the owner learns of its loss. The
// package of each store documents what a failover does to locks.
//
// # Fencing tokens and guarded writes
//
// A process can be paused after it has checked the lock and before it writes. The write may then arrive after another process has acquired
// the lock. No lock service can prevent such a late write. There are two remedies. First, pass [Hold.Token] with each write, and let the
// resource refuse any token that is lower than the highest token it has seen. Second, keep the data in the store of the lock and use a
// guarded write, which takes effect only while the lock is held. The guarded writes are [Hold.Save], zklock.Multi, etcdlock.Txn, pglock.Tx,
// mysqllock.Tx and redislock.Eval. Save belongs to one hold. The others take a [Guard], which is a hold or the locks of [AcquireAll]. If
// late writes do no harm, you need neither remedy.
//
// # More kinds of locks
//
//   - [Registry.RWMutex] is a lock that readers share. The readers of one process have one queue entry.
//   - [Registry.Semaphore] limits the permits that all processes together hold. [Semaphore.SetPermits] changes the limit.
//   - [AcquireAll] acquires several locks without deadlock.
//   - [Hold.Contended] and [Hold.RevokeRequested] let a holder release early, because another process waits or has called [Mutex.Revoke].
//
// # What it costs
//
// An uncontended Acquire takes one round trip to the store, or two if the path does not exist yet in ZooKeeper. Release takes one round
// trip. TryAcquire takes one, or two on ZooKeeper if the lock is free. A transfer, from Release in one process to Acquire in another, takes
// one round trip, however many processes wait. A local hand-off and a reentrant acquisition take none. Locks of package dropin take more
// round trips than these numbers.
//
// A transfer takes up to two round trips between two processes with one goroutine each, if they hold the lock for less than a round trip.
// With [WithLinger], a process that acquires the same lock again sends no request.
//
// # Tests of your code
//
// Let your code take a [*Registry]. In tests, pass a registry of package memlock, a store in memory, whichever store your program uses.
// The tests can lose locks, slow requests down and cut connections, also in bubbles of testing/synctest.
//
// # Moving from zk.Lock
//
// Package zklock/dropin has the methods of go-zookeeper's zk.Lock, and uses the connection of your program. Locks of dropin and of zk.Lock
// exclude each other, so you can move processes one at a time. zklock.Dial adds contexts, leases and notice of loss.
package tier
