package pglock

import (
	"context"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// Contenders reads the queue with one request, as it was at one moment.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	var queue []second.Contender
	err := l.store.insist(ctx, func(ctx context.Context) error {
		places, err := look(ctx, l.store.requests, []string{l.path})
		queue = nil
		for _, p := range places {
			queue = append(queue, p.Contender)
		}
		return err
	})
	if err != nil {
		return nil, l.failure("contenders of", err)
	}
	return queue, nil
}

// Revoke marks those that have the lock as asked for it, in one request, which also tells them. It is
// nothing if nobody has the lock.
func (l *claim) Revoke(ctx context.Context) error {
	err := l.store.insist(ctx, func(ctx context.Context) error {
		_, err := l.store.requests.Exec(ctx, "SELECT tierlock.ask($1)", l.path)
		return err
	})
	if err != nil {
		return l.failure("revoke", err)
	}
	return nil
}

// insist repeats a request until it is answered, or ctx is done.
func (s *store) insist(ctx context.Context, request func(context.Context) error) error {
	ctx, end := s.scope(ctx)
	defer end()
	for pace := retry.New(); ; {
		err := s.call(ctx, request)
		if err == nil || classify(err) == permanent {
			return err
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return s.explain(err)
		}
	}
}
