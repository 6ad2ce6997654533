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

// These are the errors of an election. The errors that methods return wrap them: compare with errors.Is.
var (
	// ErrNotLeader means that this process is not the leader, or cannot be sure that it is the leader.
	ErrNotLeader = errors.New("not the leader")
	// ErrNoLeader means that there is no candidate.
	ErrNoLeader = errors.New("no leader")
	// ErrStop is returned by the function of [Election.Run] to resign and to end Run.
	ErrStop = errors.New("stop campaigning")
)

// An Election lets this process campaign for leadership at one path. It is safe for concurrent use and needs no Close.
type Election struct {
	mutex *tier.Mutex
	term  atomic.Pointer[term] // nil while this process does not lead
}

// A term is a time during which this process leads.
type term struct {
	hold *tier.Hold
	ctx  context.Context // the context of the function that leads
}

// New returns the election at path, which must be a valid lock path. It takes the options of [tier.Registry.Mutex]. New sends no request.
// If path cannot be a lock, the methods return an error.
//
// An election always uses [tier.WithStrictOrder], and ignores [tier.WithLinger] and [tier.WithMaxWait]. Options of the registry do not
// change this, because they would delay a change of leaders. With [tier.WithRounds], several calls of Run in one process can lead one after
// another within one term.
func New(locks *tier.Registry, path string, opts ...tier.Option) *Election {
	strict := []tier.Option{tier.WithStrictOrder(), tier.WithLinger(0), tier.WithMaxWait(0)}
	return &Election{mutex: locks.Mutex(path, slices.Concat(opts, strict)...)}
}

// IsLeader returns nil while this process leads, and otherwise an error that wraps [ErrNotLeader]. IsLeader sends no request. It compares
// the lease with the local clock. Therefore its result is right immediately after a pause of the process. IsLeader returns an error as
// soon as the context of the leading function has ended, even if the function still runs.
func (e *Election) IsLeader() error { return e.term.Load().check() }

// check returns nil if this process leads in the term.
func (t *term) check() error {
	if t == nil {
		return ErrNotLeader
	}
	if err := cmp.Or(t.hold.Err(), context.Cause(t.ctx)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

// Publish saves up to 16 KiB of data beside the lock, for example the address at which this process serves. [Election.Observe] delivers the
// data with the leader, in any process. Publish replaces the data that the leader has published before. The data belongs to the term of the
// leader: Observe never delivers it with a later leader. The data is the value of the lock ([tier.Hold.Save]), so save no other value
// there.
//
// Publish takes one round trip, or two for the first value on ZooKeeper. If the answer is lost, Publish repeats the write until the store
// answers, ctx ends, or this process stops leading. The error wraps:
//
//   - [ErrNotLeader] if this process does not lead, or stops leading before the store answers. If the lock was lost, the error may also
//     wrap [tier.ErrLost].
//   - [tier.ErrUnknown] if ctx ended, or this process stopped leading, before an answer came. The data may have been published, or may
//     still be published in this term.
//   - the cause of ctx if ctx had ended before the call, or an error of the store such as a missing permission.
//
// Publish also returns an error if data is longer than 16 KiB. If the error does not wrap ErrUnknown, the published data has not changed.
func (e *Election) Publish(ctx context.Context, data []byte) error {
	t := e.term.Load()
	if err := t.check(); err != nil {
		return e.failure("publish at", err)
	}
	err := t.hold.Save(ctx, data)
	if errors.Is(err, tier.ErrLost) || errors.Is(err, tier.ErrReleased) {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return err
}

func (e *Election) failure(op string, err error) error {
	return fmt.Errorf("election: %s %s: %w", op, e.mutex.Path(), err)
}
