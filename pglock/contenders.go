package pglock

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
)

// quietSQL is quiet_ms for one who only looks: of a promotion that nobody has noted, it begins now.
const quietSQL = `SELECT greatest(0, least(longest_ms, ceil(1000 * extract(epoch FROM CASE WHEN pg_is_in_recovery() THEN interval '0'
	WHEN timeline = tierlock.timeline() THEN quiet - clock_timestamp() ELSE longest_ms * interval '1 ms' END))))::bigint,
	longest_ms, clock_timestamp() FROM tierlock.promotion`

// Contenders reads the queue as it was at one moment. In a quarantine, whoever is first has the
// lock if it was in the queue before that, as it then had it already.
func (l *claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	s := l.store
	var queue []second.Contender
	err := s.insist(ctx, func(ctx context.Context) error {
		var quiet, longest int64
		var now time.Time
		sent := time.Now()
		if err := s.requests.QueryRow(ctx, quietSQL).Scan(&quiet, &longest, &now); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		s.hush(quiet, sent)
		begun := now.Add(time.Duration(quiet-longest) * time.Millisecond)
		places, err := look(ctx, s.requests, []string{l.path})
		queue = nil
		for _, p := range places {
			queue = append(queue, p.Contender)
		}
		if quiet > 0 {
			second.Quarantined(queue, func(i int) bool { return !queue[i].Since.After(begun) })
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
