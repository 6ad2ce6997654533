//go:build unix

package everystore

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/tierlock/tierlock/adapters/certmagiclock"
	"github.com/tierlock/tierlock/adapters/cronlock"
	"github.com/tierlock/tierlock/adapters/gocronlock"
	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/locktest"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/tier"
)

// A part is something that stands on package tier. It competes for a place with others at the same
// path, and whenever it has it, calls section with a context that ends when it learns that it has lost it.
// It returns once ctx ends.
type part struct {
	name    string
	compete func(ctx context.Context, t *testing.T, locks *tier.Registry, path string, section func(context.Context))
}

var parts = []part{
	{"election", elect}, {"cron", cronJob}, {"gocron Locker", gocronLock}, {"gocron Elector", gocronElect}, {"CertMagic", certmagicLock},
}

func elect(ctx context.Context, t *testing.T, locks *tier.Registry, path string, section func(context.Context)) {
	err := election.New(locks, path).Run(ctx, func(ctx context.Context, _ int64) error {
		section(ctx)
		return nil
	})
	need.WantErr(t, "the end of a campaign", err, context.Canceled)
}

func cronJob(ctx context.Context, _ *testing.T, locks *tier.Registry, path string, section func(context.Context)) {
	job := cronlock.Job(locks.Mutex(path), section, cronlock.WithWait(time.Second), cronlock.WithLogger(slog.New(slog.DiscardHandler)))
	for ctx.Err() == nil {
		job.Run()
	}
}

func gocronLock(ctx context.Context, t *testing.T, locks *tier.Registry, path string, section func(context.Context)) {
	log, lost := listen()
	locker := gocronlock.NewLocker(locks, path, gocronlock.WithWait(time.Second), gocronlock.WithLogger(log))
	for ctx.Err() == nil {
		lock, err := locker.Lock(ctx, "job")
		if err != nil {
			continue
		}
		section(lost.hold())
		if err := lock.Unlock(ctx); err != nil && !errors.Is(err, tier.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	}
}

// An elector leads until it is closed, so each turn is that of another one.
func gocronElect(ctx context.Context, t *testing.T, locks *tier.Registry, path string, section func(context.Context)) {
	for ctx.Err() == nil {
		elector := gocronlock.NewElector(locks, path, gocronlock.WithLogger(slog.New(slog.DiscardHandler)))
		leads := func() bool { return elector.IsLeader(ctx) == nil }
		for !leads() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if ctx.Err() == nil {
			led, end := context.WithCancelCause(context.Background())
			go func() {
				for leads() && led.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				end(tier.ErrLost)
			}()
			section(led)
			end(nil)
		}
		locktest.WantErr(t, "the campaign of an elector ends with", elector.Close(), nil)
	}
}

func certmagicLock(ctx context.Context, t *testing.T, locks *tier.Registry, path string, section func(context.Context)) {
	log, lost := listen()
	storage := certmagiclock.New(&certmagic.FileStorage{Path: t.TempDir()}, locks, path, certmagiclock.WithLogger(log))
	for ctx.Err() == nil {
		if err := storage.Lock(ctx, "issue_cert_example.com"); err != nil {
			continue
		}
		section(lost.hold())
		locktest.WantErr(t, "Unlock", storage.Unlock(ctx, "issue_cert_example.com"), nil)
	}
}

// Losses are what an adapter tells of that has no other way: a warning ends the present hold.
type losses struct {
	slog.Handler
	mu   sync.Mutex // guards the field below
	lose context.CancelCauseFunc
}

// listen returns a logger for an adapter, and what is heard on it.
func listen() (*slog.Logger, *losses) {
	l := &losses{Handler: slog.DiscardHandler}
	return slog.New(l), l
}

func (l *losses) Enabled(context.Context, slog.Level) bool { return true }

func (l *losses) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && strings.Contains(r.Message, "lost") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lose(tier.ErrLost)
	}
	return nil
}

// hold returns the context of a hold that has just begun.
func (l *losses) hold() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, lose := context.WithCancelCause(context.Background())
	l.lose = lose
	return ctx
}
