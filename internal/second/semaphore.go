package second

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// A Semaphore is a handle that takes permits. All processes together may have as many as the store allows. That is the number which the
// first process asked for, until SetPermits stores another one. Permits are taken and released individually, but a request for several is
// served as a whole.
type Semaphore interface {
	// Permits returns how many permits there are, as far as this process knows: the number that it was given, until the store has
	// answered with another one.
	Permits() int
	// SetPermits changes the number in the store. Permits that are taken stay valid. It waits for a store that cannot be reached.
	SetPermits(ctx context.Context, n int) error
	// Acquire queues, waits until its contender is first, and then takes as many of the free permits as d.Take says. One write takes them,
	// all or none, and removes the contender from the queue. As long as it is first, no other process gets any. It ends like
	// [Claim.Acquire], and with [ErrTooManyPermits] once it wants more permits than there are.
	Acquire(ctx context.Context, d *Demand) ([]Permit, error)
	// TryAcquire returns [ErrLocked] unless k permits are free and no process queues for them, [ErrTooManyPermits] if there are fewer, and
	// fails at once while the store cannot be reached.
	TryAcquire(ctx context.Context, k int) ([]Permit, error)
	// Release gives permits up, each exactly once, in one write. It waits until they are removed from the store, no longer than
	// [Settings.ReleaseWithin]; what is left is removed in the background. It returns nil if no permit was lost before, and otherwise the
	// loss of one.
	Release([]Permit) error
	// Contenders returns the holders of permits, with Permits set, and then the waiters.
	Contenders(ctx context.Context) ([]Contender, error)
	// Break removes the contender with the token, as Contenders shows it, like [Claim.Break]: a waiter, or all permits that were taken
	// together.
	Break(ctx context.Context, token int64) error
	// Most is how many permits one write can take.
	Most() int
	// Equal reports whether the contenders of both semaphores would be alike, so that an error that retrying cannot fix applies to both.
	Equal(Semaphore) bool
}

// A Permit belongs to this process until it is released. Its methods are like those of a [Grant].
type Permit interface {
	Context() context.Context
	ErrAt(now time.Duration) error
	ValidUntil() time.Time
	// Token returns the token of the place in the queue with which the permit was taken.
	Token() int64
	Leased() bool
}

// A Demand connects the waiting goroutines of a process to its acquisition of permits: it says how many permits they want, and receives
// what the acquisition sees in the queue.
type Demand struct {
	// Take returns how many permits to take when free are free. It returns 0 to wait for more, and once the acquisition has ended.
	Take func(free int) int
	// Want returns how many permits to ask for before it is known how many are free: at least as many as the first waiter wants.
	Want func() int
	// Changed is set when Take may return another number.
	Changed mutexbool.Bool

	Wait   // where the acquisition stands in the queue
	others atomic.Int64
}

// Contest records how many other contenders are in the queue. Only the acquisition calls it.
func (d *Demand) Contest(others int) { d.others.Store(max(d.others.Load(), int64(others))) }

// Others returns the largest number of other contenders that the acquisition has seen in the queue.
func (d *Demand) Others() int { return int(d.others.Load()) }

// Contended reports whether another process has been seen in the queue since the acquisition began.
func (d *Demand) Contended() bool { return d.Others() > 0 || d.Behind() }
