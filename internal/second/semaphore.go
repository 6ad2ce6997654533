package second

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
)

// A Semaphore is one way to take permits. All processes together may have as many as the store says. It says what the first
// process asked for, until another number is set.
// A permit is taken and given up in the store one by one, but a request for several is served whole.
type Semaphore interface {
	// Permits returns how many permits there are, as far as this process knows: the number that it was given, until the store has
	// answered with another one.
	Permits() int
	// SetPermits changes the number in the store. Permits that are taken stay taken. It waits for a store that cannot be reached.
	SetPermits(ctx context.Context, n int) error
	// Acquire queues and waits until it is first and d takes of the permits that are free. These
	// come in one write, all or none, with which it leaves the queue. As long as it is first,
	// no other process gets any. It ends like [Claim.Acquire], and with [ErrTooManyPermits] once it wants more permits than there are.
	Acquire(ctx context.Context, d *Demand) ([]Permit, error)
	// TryAcquire returns [ErrLocked] unless k permits are free and no process queues for them, [ErrTooManyPermits] if there are fewer, and
	// fails at once while the store cannot be reached.
	TryAcquire(ctx context.Context, k int) ([]Permit, error)
	// Release gives permits up, each of them once, in one write, and waits until they are gone,
	// no longer than [Settings.ReleaseWithin]; what is left is removed in the background. It returns nil
	// if all were ours to the end, and else the loss of one.
	Release([]Permit) error
	// Contenders returns those that have permits, with Permits, and then the queue.
	Contenders(ctx context.Context) ([]Contender, error)
	// Break removes the contender with the token, as Contenders shows it, like [Claim.Break]: a waiter, or all permits that were taken
	// together.
	Break(ctx context.Context, token int64) error
	// Most is how many permits one write can take.
	Most() int
	// Equal reports whether what both leave in the store would be alike, so that an error that
	// retrying cannot fix is one for both.
	Equal(Semaphore) bool
}

// A Permit is given to this process until it is released. Its methods are like those of a [Grant].
type Permit interface {
	Context() context.Context
	ErrAt(now time.Duration) error
	ValidUntil() time.Time
	// Token is that of the place in the queue with which the permit was taken.
	Token() int64
	Leased() bool
}

// A Demand is what the goroutines of a process want of a semaphore, as told to an acquisition under
// way, and what that tells them.
type Demand struct {
	// Take returns how many permits to take when so many are free: 0 to wait for more, and once the acquisition has ended.
	Take func(free int) int
	// Want returns how many to ask for before it is known how many are free: no fewer than the first one wants.
	Want func() int
	// Changed is set when Take may return something else.
	Changed mutexbool.Bool

	Wait   // where the acquisition stands in the queue
	others atomic.Int64
}

// Contest says how many others have been seen in the queue. It is called by the acquisition alone.
func (d *Demand) Contest(others int) { d.others.Store(max(d.others.Load(), int64(others))) }

// Others returns how many others were in the queue, as far as the first one knows.
func (d *Demand) Others() int { return int(d.others.Load()) }

// Contended reports whether another process has been seen in the queue since the acquisition began.
func (d *Demand) Contended() bool { return d.Others() > 0 || d.Behind() }
