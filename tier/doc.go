// Package tier is a distributed, reentrant lock for services in which many goroutines in several processes contend for the same resource.
// It works on ZooKeeper, etcd, PostgreSQL and Redis.
//
// A [Registry] comes from the package of a store: zklock.Dial, etcdlock.New, pglock.New, pglock.NewAdvisory or redislock.New.
//
//	locks, err := zklock.Dial(ctx, "127.0.0.1:2181")
//	…
//	defer locks.Close()
//	job := locks.Mutex("/jobs/report")
//	err = job.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
//		return write(ctx, tier.HoldFrom(ctx, job).Token()) // the resource refuses lower tokens
//	})
//
// [Mutex.Acquire] waits for the lock and returns a [Hold], [Mutex.TryAcquire] does not wait, and [WithMaxWait] limits the wait.
//
// Each process runs a local queue in front of the distributed lock. Only the goroutine at its head competes in the store, so a process has
// at most one queue entry per lock, a contender, however many of its goroutines wait:
//
//	process A                        store                       process B
//	g3 → g2 → g1  ── one entry ──▶  [ A holds | B waits ]  ◀── one entry ──  g4 ← g5
//
// # Reentrancy and errgroups
//
// Go has no goroutine identity, so ownership follows the context. [Mutex.Acquire] with the context of [Hold.Context], or of the function
// of [Mutex.Do], joins that hold; with any other context it waits.
//
// Caution: goroutines that share such a context, for example in an errgroup, are not excluded from each other, although each acquires the
// lock. Give a goroutine that has to compete for the lock [WithoutHold] of the context, and do not wait for it while you hold the lock.
// A goroutine that holds the lock and acquires it without that context deadlocks; after 10 s a warning is logged. [WithLeakDetection] also
// reports holds that were never released.
//
// Reentrant locks say nothing about invariants in memory. Inside a package, prefer functions that document that the caller holds the lock.
//
// # What is promised
//
//   - Exclusion: at most one owner in all processes while the owner's lease is valid, and at most one in a process even without a lease.
//   - Notice of loss: an owner learns that the lock is lost before the store can grant it to another process. The context ends with a cause
//     that wraps [ErrLost], [Hold.Lost] is closed, and [Hold.Err], [Hold.Release] and Do return the error.
//   - Order: processes are served in the order in which they queue, and goroutines of a process in the order of their calls. While other
//     processes wait, a process may hand the lock off among its own goroutines for a limited time, 20 ms by default ([WithHandOff]), or not
//     at all ([WithStrictOrder]).
//   - Cleanup: queue entries of cancelled or failed acquisitions are deleted from the store.
//
// # Leases and outages
//
// A lease ends by the process's own clock, a margin before the store can grant the lock to another process. The margin is a third of the
// TTL of [WithLeaseTTL]. A broken connection alone loses no lock: it stays held until its lease ends. When the store answers again in
// time, the lease is renewed. In an outage [Hold.Release] blocks for [WithReleaseTimeout] at most. This assumes that clocks run at the same
// rate, except for a small part of the margin. The sleep of a suspended machine is counted.
//
// Caution: the clocks of a virtual machine stop while its hypervisor pauses it. An owner on that machine learns of its loss too late.
// docs/promises.md lists what is counted on which system.
//
// Caution: if an operator deletes the queue entry of an owner, the next process can hold the lock before the owner knows. The package of
// each store documents what a failover does to locks.
//
// # Fencing tokens and guarded writes
//
// A process can be paused after it has checked the lock and before it writes, and the write then arrives after another process has acquired
// the lock. No lock service can prevent that. There are two remedies. Pass [Hold.Token] with each write, and let the resource refuse lower
// tokens than the highest it has seen. Or keep the data in the store of the lock and use a guarded write, which takes effect only while
// the lock is held: zklock.Multi, etcdlock.Txn, pglock.Tx or redislock.Eval, under a [Guard]: a hold, or several locks of [AcquireAll].
// You need neither if late writes do no harm.
//
// # More kinds of locks
//
//   - [Registry.RWMutex]: readers share the lock. The readers of one process have one queue entry.
//   - [Registry.Semaphore]: a number of permits for all processes, which [Semaphore.SetPermits] changes.
//   - [AcquireAll]: several locks without deadlock.
//   - [Hold.Contended] and [Hold.RevokeRequested]: give the lock up early, because another process waits or has called [Mutex.Revoke].
//
// # What it costs
//
// Round trips to the store, over a connection of the lock's own:
//
//	Acquire, uncontended                       1, or 2 if the path does not exist yet in ZooKeeper
//	Release                                    1
//	TryAcquire                                 1, or 2 on ZooKeeper if the lock is free
//	transfer: Release to Acquire elsewhere     1, however many processes wait
//	local hand-off, reentrant acquisition      0
//
// A transfer takes up to 2 between two processes that have one goroutine each and hold the lock for less than a round trip.
// With [WithLinger] a process that acquires the same lock again sends nothing.
//
// # Tests of your code
//
// Let your code take a [*Registry]. Package memlock is a store in memory for its tests, whatever store it runs on: with lost locks, slow
// requests and cut connections, also in bubbles of testing/synctest.
//
// # Moving from zk.Lock
//
// Package zklock/dropin has the methods of go-zookeeper's zk.Lock on the connection that the program has. Its locks and those of zk.Lock
// exclude each other, so processes can move one at a time. zklock.Dial adds contexts, the lease and notice of loss.
package tier
