package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tierlock/tierlock/tier"
)

// Errors are wrapped; test for these with errors.Is.
var (
	// ErrNotLeader says that this process does not lead, or is not certain to.
	ErrNotLeader = errors.New("not the leader")
	// ErrNoLeader says that there is no candidate.
	ErrNoLeader = errors.New("no leader")
	// ErrStop is for the function that [Election.Run] calls: it resigns for good.
	ErrStop = errors.New("stop campaigning")
)

// An Election is one that this process can take part in. It is safe for concurrent use, and need
// not be closed.
type Election struct {
	mutex *tier.Mutex
	term  atomic.Pointer[term] // nil while this process does not lead
}

// A term is a time during which this process leads.
type term struct {
	hold *tier.Hold
	ctx  context.Context // that of the function that leads
}

// New returns the election at path, which is that of a lock. Options are those of
// [tier.Registry.Mutex]. New sends nothing; a path that cannot be a lock is reported by the methods.
//
// Whatever the registry is told about its locks, an election has no hand-off, no lingering and no
// limit for a wait: a change of leaders would have to wait for them. With [tier.WithRounds], calls
// of Run in one process may follow one another in one term.
func New(locks *tier.Registry, path string, opts ...tier.Option) *Election {
	strict := []tier.Option{tier.WithStrictOrder(), tier.WithLinger(0), tier.WithMaxWait(0)}
	return &Election{mutex: locks.Mutex(path, slices.Concat(opts, strict)...)}
}

// IsLeader returns nil while this process leads, and otherwise an error that wraps [ErrNotLeader].
// It asks nobody but the clock, so it is right from the first instruction of a process that was
// stopped and continued. It is not nil any more once the context of the function that leads has
// ended, even if that function is still at work.
func (e *Election) IsLeader() error {
	t := e.term.Load()
	if t == nil {
		return ErrNotLeader
	}
	if err := cmp.Or(t.hold.Err(), context.Cause(t.ctx)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

func (e *Election) failure(op string, err error) error {
	return fmt.Errorf("election: %s %s: %w", op, e.mutex.Path(), err)
}
