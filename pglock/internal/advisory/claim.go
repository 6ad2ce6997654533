package advisory

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A claim is one way to queue for the lock at path.
type claim struct {
	tier   *Tier
	path   string
	key    int64
	mode   second.Mode
	linger time.Duration // as its contenders say
}

func (l *claim) Equal(other second.Claim) bool {
	o, ok := other.(*claim)
	return ok && *l == *o
}

// Acquire takes one round trip if it need not wait for anybody.
func (l *claim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	return l.start(ctx, "acquire", func(ctx context.Context) (*Contender, error) { return l.queueUp(ctx, w) })
}

// TryAcquire takes one round trip.
func (l *claim) TryAcquire(ctx context.Context) (second.Grant, error) {
	return l.start(ctx, "try", l.try)
}

// Requeue takes one round trip, in which the session unlocks and queues again.
func (l *claim) Requeue(ctx context.Context, grant second.Grant, w *second.Wait) (second.Grant, error) {
	old := grant.(*Contender)
	if old.spent.Swap(true) {
		return nil, second.ErrReleased
	}
	loss := old.giveUp()
	if loss != nil {
		old.startRelease(loss)
		return l.Acquire(ctx, w)
	}
	var begun atomic.Bool // whoever sets it sees to the end of old
	g, err := l.start(ctx, "requeue", func(ctx context.Context) (*Contender, error) {
		if begun.Swap(true) {
			return nil, context.Cause(ctx)
		}
		return l.requeue(ctx, old, w)
	})
	if err != nil {
		if !begun.Swap(true) {
			old.startRelease(nil)
		}
		old.AwaitRelease() // whoever comes next would queue behind it
	}
	return g, err
}

// start runs an attempt of which the caller may take leave at any time: the attempt then undoes
// itself.
func (l *claim) start(ctx context.Context, op string, attempt func(context.Context) (*Contender, error)) (second.Grant, error) {
	type result struct {
		granted *Contender
		err     error
	}
	results := make(chan result)
	scope, end := l.tier.scope(ctx)
	if !l.tier.spawn(func() {
		defer end()
		c, err := attempt(scope)
		select {
		case results <- result{c, err}:
		case <-scope.Done():
			if c != nil {
				c.discard()
			}
		}
	}) {
		end()
		return nil, l.failure(op, second.ErrClosed)
	}
	select {
	case r := <-results:
		if r.err != nil {
			return nil, l.failure(op, r.err)
		}
		return r.granted, nil
	case <-scope.Done():
		return nil, l.failure(op, l.tier.explain(context.Cause(scope)))
	}
}

func (l *claim) failure(op string, err error) error {
	return fmt.Errorf("pglock: %s %s: %w", op, l.path, err)
}
