// Package tier is a distributed reentrant lock for services where many goroutines in several processes compete for the same thing, on
// any store that can decide between processes.
//
// It puts two tiers in series. The gate, local to the process, lets one goroutine through at a
// time, in order of arrival. Behind it is the second tier: one contender per process and lock
// path, which competes in the store with those of the other processes, however many goroutines
// wait. A release goes the other way round: the contender first, then the gate.
//
// A [Registry] comes from the package of a store: zklock.Dial for ZooKeeper, etcdlock.New,
// pglock.New and pglock.NewAdvisory for PostgreSQL, redislock.New, and memlock.Server.Connect in tests.
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
// # Reentrancy and errgroups
//
// Go has no goroutine identity. Ownership therefore follows the context: [Mutex.Acquire] with the context of [Hold.Context], or of the
// function of [Mutex.Do], enters again. With any other context it queues. A goroutine that acquires a lock again without that context waits
// for itself: after 10 s a warning says so, on the logger of the store. [WithLeakDetection] warns of holds that were never released.
//
// Caution: goroutines of an errgroup that share such a context share the hold. They are not excluded from each other, although each
// acquires the lock. Give each goroutine that has to compete for the lock the context of [WithoutHold], and do not wait for it while you
// hold the lock.
//
// Entering again says nothing about invariants in memory. This lock protects something outside the process, and entering again says "make
// sure that it is ours". Inside a package, prefer functions that document that the caller holds the lock.
//
// # Loss
//
// A lock has at most one owner in all processes while the owner's lease is valid, and at most one owner in a process even without a lease.
// A job learns that its lock is lost before the store can give it to another process: its context ends with a cause that wraps [ErrLost],
// [Hold.Lost] is closed, [Hold.Err] says so, and [Hold.Release] and Do return it.
//
// A lease ends by the process's own clock, a margin before the store can give the lock to another process: a third of the TTL of
// [WithLeaseTTL]. A broken connection alone loses nothing: the lock is suspended until the store answers again or the lease ends. In an
// outage [Hold.Release] waits for [WithReleaseTimeout] at most. All this assumes that clocks run at the same rate, but for a small part of
// the margin. The sleep of a suspended machine counts.
//
// Caution: the clocks of a virtual machine stand still while its hypervisor pauses it, and the owner there does not learn of the loss in
// time. docs/promises.md says what counts on which system.
//
// If an operator deletes the contender of an owner, the owner may hear of it only after the
// next one has the lock. What a fail-over of the store does to locks is in the documentation of its package.
//
// # Fencing tokens
//
// A process can be stopped between looking at the lock and acting, and then acts late, when another process has the lock. You need a token
// wherever such a late write does harm. Give [Hold.Token] to the resource and let it refuse lower tokens than the highest it has seen. If
// the data is in the store of the lock, you need no token: zklock.Multi, etcdlock.Txn, pglock.Tx and redislock.Eval write only while the
// lock is ours, under a [Guard], which is a hold, or several locks of [AcquireAll].
//
// # Order
//
// Processes are served in the order in which they queue, goroutines of a process in the order of their calls. While another process waits,
// a process hands the lock off among its goroutines for the budget of [WithHandOff], 20 ms by default; with [WithStrictOrder] not at all.
// Abandoned contenders are removed from the store.
//
// # Readers, permits, several locks
//
// [Registry.RWMutex] has readers that share the lock, of which a process is one contender.
// [Registry.Semaphore] has a number of permits for all processes, which [Semaphore.SetPermits] changes. [AcquireAll] takes several locks
// without deadlocks. [Hold.Contended] tells an owner that another process waits, and
// [Hold.RevokeRequested] that it was asked for the lock, with [Mutex.Revoke].
//
// # What it costs
//
// In round trips to the store, over a connection of the lock's own:
//
//	Acquire, nobody else there                 1, or 2 where a path is missing in ZooKeeper
//	Release                                    1
//	TryAcquire                                 1 if somebody is there, else 2 on ZooKeeper
//	from Release to Acquire elsewhere          1, however many processes wait
//	the next goroutine's turn, entering again  0
//
// From Release to Acquire takes up to 2 between two processes that have one goroutine each and hold the lock for less than a round trip.
// With [WithLinger] a process that takes the same lock again sends nothing.
//
// # Tests of your code
//
// Let your code take a [*Registry]. Package memlock has a store in memory for tests of it, on whatever store it runs, with lost locks, slow
// requests and cut connections, also in bubbles of testing/synctest.
//
// # Moving from zk.Lock
//
// Package zklock/dropin has the methods of go-zookeeper's zk.Lock on the connection that the program has. Its locks and those of zk.Lock
// exclude each other, so processes can move one at a time. zklock.Dial adds contexts, the lease and notice of loss.
package tier
