package tier

import (
	"fmt"
	"time"
)

// An Option changes how a [Registry] shares its locks with other processes.
type Option func(*options)

// ForDial makes an Option one of those that the front doors of the second tiers take.
func (Option) ForDial() {}

// Check says what is wrong with options, as [New] would.
func Check(opts ...Option) error {
	_, err := newOptions(opts)
	return err
}

type options struct {
	handOff time.Duration
	rounds  bool
	linger  time.Duration
}

// defaultHandOff is measured; see DESIGN.md.
const defaultHandOff = 20 * time.Millisecond

// WithHandOff sets the hand-off budget: for how long, while another process waits for a
// lock, this process may hand it on among its own goroutines before the other one
// gets its turn; default 20 ms. It runs from when the look at the queue that showed the
// other process was sent, and never from before this process got the lock. While no other
// process waits there is no limit. Zero is strict order, not the absence of a limit: nothing
// is handed on (but see [WithRounds]), and the lock goes at every release, whether another
// process waits or not.
//
// Nobody works while a lock changes process, which takes one round trip with a write to the
// store. A budget of ten times that keeps the lock in use for nine tenths of the time,
// twenty times for nineteen twentieths; and every process ahead may use all of its own.
// Processes with equal budgets get equal shares. The look takes a round trip, however short
// the budget is.
func WithHandOff(budget time.Duration) Option {
	return func(o *options) { o.handOff = budget }
}

// WithRounds gives a turn to every goroutine that was waiting when the lock came, before
// another process gets its turn, even if that takes longer than the hand-off budget. It
// is for paths that are shared with locks of one contender per goroutine or thread, such as
// zk.Lock and Curator's: the queue is fair to contenders, and so a process gets as many turns
// with its single one as they do with theirs. With a budget of zero it gets no more than
// that.
func WithRounds() Option {
	return func(o *options) { o.rounds = true }
}

// WithLinger keeps the lock for up to d after the last release when nobody waits, so
// that the next acquisition of this process needs no round trip; default 0. Another
// process that queues ends it at once.
//
// It is for the case that the same process comes back: many locks, such as one for each
// customer or job, each of which mostly one process wants. Then a turn costs the store
// nothing; what lingers is a contender and one or two watches. It is of no use where several
// processes want the same locks: whoever finds a lock lingering waits for two round trips
// more than if it had gone, and TryAcquire in another process gets [ErrLocked], which does
// not end the lingering.
func WithLinger(d time.Duration) Option {
	return func(o *options) { o.linger = d }
}

func newOptions(opts []Option) (options, error) {
	o := options{handOff: defaultHandOff}
	for _, opt := range opts {
		opt(&o)
	}
	if o.handOff < 0 {
		return o, fmt.Errorf("tier: hand-off budget %v: negative", o.handOff)
	}
	if o.linger < 0 {
		return o, fmt.Errorf("tier: linger %v: negative", o.linger)
	}
	return o, nil
}
