// Package tier is a distributed reentrant lock on ZooKeeper for processes with many
// goroutines that want the same thing.
//
// It puts two tiers in series. The gate, local to the process, lets one goroutine
// through at a time, in order of arrival. The node, a single znode per process and lock
// path, competes with the other processes. However many goroutines wait, their process
// has one znode, and few watches: on the two nodes right ahead and on its own. A release
// goes the other way round: the node first, then the gate.
//
//	locks, err := tier.Dial(ctx, []string{"127.0.0.1:2181"})
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
// the hold and have to coordinate among themselves.
//
// Recursive mutexes are rightly unloved in Go, because a mutex protects the invariants
// of memory and entering again says nothing about them. This lock protects something
// outside of the process, and entering again says "make sure that it is ours", which
// makes as much sense the second time; inside a package, prefer functions that document
// that they are called with the lock held.
//
// # What is promised
//
// At most one owner in all processes while the owner's lease is valid, and at most one
// owner in a process even without one. An owner learns that the lock is lost before the
// server can give it to anybody else: the context ends with a cause that wraps
// [ErrLost], [Hold.Lost] is closed, and [Hold.Err] says so. Processes are served in the
// order of their nodes, goroutines of a process in the order of their calls. No znode
// outlives its purpose. The lock excludes go-zookeeper's zk.Lock and Curator's
// InterProcessMutex on the same path, but not Curator's InterProcessReadWriteLock; see
// package zklock for others.
//
// An owner whose node is deleted by somebody else, such as an operator, may hear of it after
// the next one has the lock, up to a sixth of the session timeout late.
//
// What a former owner does may still take effect late. A process can be stopped between
// looking and acting; give [Hold.Token] to the resource, or write with [Hold.Multi].
// Package zklock documents the lease and what it assumes.
//
// # What it costs
//
// In round trips to the ensemble, over a connection made by [Dial]:
//
//	Acquire, nobody else there                 1, or 2 where the path is missing
//	Release                                    1
//	TryAcquire                                 1 if somebody is there, else 2
//	from Release to Acquire elsewhere          1, however many processes wait
//	the next goroutine's turn, entering again  0
//
// The last but one takes up to 2 between two processes that have one goroutine each and
// hold the lock for less than a round trip.
package tier
