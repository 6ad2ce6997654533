package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/second"
)

// A Mutex is a lock path in a registry. It is safe for concurrent use.
//
// It is not a sync.Locker: a lock that can fail must be able to say so.
type Mutex struct {
	registry *Registry
	path     string
	mode     second.Mode
	options  *options
	claim    second.Claim
	invalid  error // why path or an option cannot be used, nil if they can
	key      any   // an ownerKey
}

func (m *Mutex) reads() bool { return m.mode == second.Reading }

func (m *Mutex) lockKey() lockKey { return lockKey{m.path, m.mode != second.Exclusive} }

// Path returns the path of the lock.
func (m *Mutex) Path() string { return m.path }

// Acquire waits until the lock is held, ctx is done, or an error occurs that retrying cannot
// fix (no permission, a path that cannot be used); every waiter of the process then gets that
// error. While the store cannot be reached it keeps trying.
//
// If ctx comes from [Hold.Context] of this lock and that hold is not released, Acquire enters
// again: it returns at once with another hold of the same ownership, or with [ErrLost] if the
// lock was lost. With any other context a goroutine that holds the lock waits for itself.
//
// When the wait ended without the lock the error is a [*WaitError], which says who is in the way as
// far as this process knows. It wraps context.Cause(ctx), which is ctx.Err() unless the program has
// given another one; or [ErrWaitLimit], at the limit of [WithMaxWait]; or [ErrClosed]. If the store
// cannot be reached, or grants nothing, it wraps the reason as well.
// After any error nothing of this call is left, or it is removed in the background.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "acquire", (*cohort).enter)
}

// TryAcquire is Acquire without waiting for others: it returns [ErrLocked] if somebody
// has the lock or waits for it, or has only just given up waiting. If that is a
// goroutine of this process, nothing is sent; otherwise it costs one round trip, and in
// ZooKeeper a second one if nobody is there. While [Registry.Err] says that the store cannot be
// reached it fails at once. A server that has just fallen silent is waited for until that is known,
// or ctx is done.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, "try", (*cohort).try)
}

func (m *Mutex) acquire(ctx context.Context, op string, take func(*cohort, context.Context, *Mutex) (*ownership, error)) (*Hold, error) {
	if m.invalid != nil {
		return nil, m.invalid
	}
	hold, err := m.reenter(ctx)
	if err != nil {
		return nil, fmt.Errorf("tier: %s %s: %w", op, m.path, err)
	}
	if hold != nil {
		return hold, nil
	}
	c := m.registry.join(m.lockKey())
	if c == nil {
		return nil, fmt.Errorf("tier: %s %s: %w", op, m.path, ErrClosed)
	}
	if o := m.registry.options.observer; o != nil {
		return o.acquire(ctx, c, m, op == "acquire", take)
	}
	own, err := take(c, ctx, m)
	if err != nil {
		m.registry.part(c)
		return nil, err
	}
	return &own.first, nil
}

// reenter returns another hold if ctx carries a live one that lets it, neither hold nor error if
// there is none.
func (m *Mutex) reenter(ctx context.Context) (*Hold, error) {
	if outer := m.carried(ctx); outer != nil {
		if err := outer.own.grant.Err(); errors.Is(err, ErrLost) {
			return nil, err
		}
		if ctx.Err() == nil {
			if hold, err := outer.own.reenter(m.reads()); hold != nil || err != nil {
				return hold, err
			}
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, nil
}

// carried returns the hold that ctx carries, nil if there is none or it is released.
func (m *Mutex) carried(ctx context.Context) *Hold {
	hold, _ := ctx.Value(m.key).(*Hold)
	if hold != nil && hold.is(released) {
		return nil
	}
	return hold
}

// Do calls f while it holds the lock. The context of f carries the hold, for [HoldFrom], and is
// cancelled if the lock is lost. It derives from ctx, whose deadline therefore limits the wait
// and the work together; [WithMaxWait] limits the wait alone. The error joins those of f and of the release; if the
// lock could not be acquired it is that of Acquire, and f is not called.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	hold, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Release()) }()
	return f(hold.Context(ctx))
}

// Revoke asks whoever has the lock to give it up, in this process or another; all of them if they
// read. It is a request: a program that listens to [Hold.Revoked] may do as it likes, and nothing
// comes of it if nobody has the lock, or listens. A lock that is only kept ([WithLinger]) goes at once.
// In ZooKeeper the request is that of Curator's Revoker, which it can be used with both ways; it takes
// the permission to write to the holder's node.
//
// Revoke waits for a store that cannot be reached until ctx is done; the error then wraps its cause.
func (m *Mutex) Revoke(ctx context.Context) error {
	if m.invalid != nil {
		return m.invalid
	}
	return m.claim.Revoke(ctx)
}
