package second

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// A Semaphore is a handle that takes permits. All processes together can have as many permits as the store allows. That total is the number
// with which the first process queued, until SetPermits stores another one. A request for several permits is served as a whole. Each
// permit can be released individually.
type Semaphore interface {
	// Permits returns the total number of permits, as far as this process knows. That is the number that the program gave, until the store
	// answers with another one.
	Permits() int
	// SetPermits changes the total in the store. Permits that are taken stay valid. SetPermits waits while the store cannot be reached.
	SetPermits(ctx context.Context, n int) error
	// Acquire enters a contender, and waits until that is the first waiter. It then takes as many of the free permits as d.Take returns. One
	// write takes all of them or none. While the contender is the first waiter, no other process gets permits. Acquire returns the same
	// errors as [Claim.Acquire], and also [ErrTooManyPermits] if it wants more permits than the total.
	Acquire(ctx context.Context, d *Demand) ([]Permit, error)
	// TryAcquire takes k permits. It returns [ErrLocked] if fewer are free or a process waits for permits. It returns [ErrTooManyPermits] if
	// the total is less than k. It fails at once while the store cannot be reached.
	TryAcquire(ctx context.Context, k int) ([]Permit, error)
	// Release gives permits up. Permits that were taken together are given up in one write. The caller gives up each permit exactly once.
	// Release waits until the permits are removed from the store, but no longer than [Settings.ReleaseWithin]. After that time they are
	// removed in the background. If permits were lost before, Release returns the loss of one of them, and otherwise nil.
	Release([]Permit) error
	// Contenders returns the holders of permits and then the waiters. Permits is set only in holders.
	Contenders(ctx context.Context) ([]Contender, error)
	// Break removes the contender whose token is given, like [Claim.Break]. The contender is a waiter, or a holder with all permits that it
	// took together. Contenders returns the tokens.
	Break(ctx context.Context, token int64) error
	// Most returns how many permits one write can take.
	Most() int
	// Equal is like [Claim.Equal].
	Equal(Semaphore) bool
}

// A Permit belongs to this process until it is released or lost. Its methods are like the methods of a [Grant] with the same names.
type Permit interface {
	Context() context.Context
	ErrAt(now time.Duration) error
	ValidUntil() time.Time
	// Token returns the token of the contender that took the permit.
	Token() int64
	Leased() bool
}

// A Demand connects the waiting goroutines of a process with its acquisition of permits. It tells the acquisition how many permits the
// goroutines want. The acquisition reports to it what it sees in the queue.
type Demand struct {
	// Take returns how many permits to take if the given number is free. It returns 0 if the acquisition has to wait for more, or has ended.
	Take func(free int) int
	// Want returns how many permits to ask for while it is unknown how many are free. That is at least as many as the first waiting
	// goroutine wants.
	Want func() int
	// Changed is set when the result of Take may have changed.
	Changed mutexbool.Bool

	Wait   // reports the place of the acquisition in the queue
	others atomic.Int64
}

// Contest records how many other contenders are in the queue. Only the acquisition calls it.
func (d *Demand) Contest(others int) { d.others.Store(max(d.others.Load(), int64(others))) }

// Others returns the largest number of other contenders that the acquisition has seen in the queue.
func (d *Demand) Others() int { return int(d.others.Load()) }

// Contended reports whether another process has been seen in the queue since the acquisition began.
func (d *Demand) Contended() bool { return d.Others() > 0 || d.Behind() }
