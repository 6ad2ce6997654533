package pglock

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

func TestTryRightAfterNewWaitsForTheFirstConnection(t *testing.T) {
	t.Parallel()
	server(t)
	for name, front := range map[string]func(*pgxpool.Pool, ...Option) (*tier.Registry, error){"New": New, "NewAdvisory": NewAdvisory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// try is right after front, whose connections take a while.
			try := func(addr string, delay, within time.Duration) (*tier.Hold, error) {
				config, err := pgxpool.ParseConfig(pgserver.PlainURL(addr))
				if err != nil {
					t.Fatal(err)
				}
				config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if err := retry.Pause(ctx, delay); err != nil {
						return nil, err
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(pool.Close)
				locks, err := front(pool) // for whose lease so short a delay is nothing
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { locks.Close() })
				ctx, cancel := context.WithTimeout(t.Context(), within)
				defer cancel()
				return locks.Mutex(lockPath(t)).TryAcquire(ctx)
			}
			hold, err := try(shared.server.Addr(), 200*time.Millisecond, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if err := hold.Release(); err != nil {
				t.Error(err)
			}
			if _, err := try(shared.server.Addr(), time.Hour, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a try that is given up: %v", err)
			}
			begun := time.Now()
			if _, err := try("127.0.0.1:1", 0, time.Minute); err == nil || time.Since(begun) > 30*time.Second {
				t.Errorf("a try where nobody is: %v after %v", err, time.Since(begun))
			}
		})
	}
}
