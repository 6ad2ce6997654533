// Package tier is a distributed reentrant lock for processes with many goroutines that want
// the same thing, on any store that can decide between processes.
//
// It puts two tiers in series. The gate, local to the process, lets one goroutine through at a
// time, in order of arrival. Behind it is the second tier: one contender per process and lock
// path, which competes in the store with those of the other processes, however many goroutines
// wait. A release goes the other way round: the contender first, then the gate.
//
// A [Registry] comes from the package of a store: zklock.Dial for ZooKeeper, etcdlock.New,
// pglock.New and pglock.NewAdvisory for PostgreSQL, redislock.New.
//
//	locks, err := zklock.Dial(ctx, "127.0.0.1:2181")
//	…
//	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Release()
//	ctx = hold.Context(ctx) // ends if the lock is lost
//
// # Who owns the lock
//
// The call tree that received the context of the hold. Go has no goroutine identity, so
// ownership follows the context: [Mutex.Acquire] with a context made by [Hold.Context]
// enters again, with any other it queues. Goroutines that share such a context share
// the hold and have to coordinate among themselves. A goroutine that does not pass it on waits for
// itself: after 10 s a warning says so, on the logger of the store. [WithLeakDetection] warns of holds
// that nobody released.
//
// Recursive mutexes are rightly unloved in Go: entering again says nothing about invariants in memory. This lock protects something
// outside the process, and entering again says "make sure that it is ours". Inside a package, prefer functions that document that the
// caller holds the lock.
//
// # What is promised
//
// At most one owner in all processes while the owner's lease is valid, and at most one
// owner in a process even without one. An owner learns that the lock is lost before the
// store can give it to anybody else: the context ends with a cause that wraps [ErrLost],
// [Hold.Lost] is closed, and [Hold.Err] says so. Processes are served in the order in which
// they queue, goroutines of a process in the order of their calls. What nobody wants any more
// is removed from the store.
//
// A lease ends by the process's own clock, and a margin before the store can give the lock to
// anybody else: a third of the session timeout, or TTL, by default. A broken connection alone loses nothing: the lock
// is suspended until the store answers again or the lease ends. All this assumes that clocks run at the same rate, but for a small
// part of the margin. The sleep of a suspended machine counts.
//
// Caution: the clocks of a virtual machine stand still while its hypervisor pauses it, and the owner there does not learn of the loss in
// time. docs/promises.md says what counts on which system.
//
// If an operator deletes the contender of an owner, the owner may hear of it only after the
// next one has the lock.
//
// What a former owner does may still take effect late: a process can be stopped between
// looking and acting. Give [Hold.Token] to the resource, or write in a transaction of the
// store that takes effect only while the lock is ours: zklock.Multi, etcdlock.Txn,
// pglock.Tx, redislock.Eval, each under a [Guard]: a hold, or several locks of [AcquireAll].
// The package of each store documents the lease, what it assumes, and who else can share a path.
//
// # The family
//
// [Registry.RWMutex] has readers that share the lock, of which a process is one contender.
// [Registry.Semaphore] has a number of permits for all processes. [AcquireAll] takes several locks
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
package tier
