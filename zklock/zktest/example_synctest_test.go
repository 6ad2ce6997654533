package zktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// writeReport stands for the code that you test: it works while it holds the lock.
func writeReport(ctx context.Context, locks *tier.Registry, begin func()) error {
	return locks.Mutex("/jobs/report").Do(ctx, func(ctx context.Context) error {
		begin()
		select {
		case <-time.After(time.Minute): // in virtual time
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// One process is cut off while it works. It has to stop before the other process, which waits for the lock, begins.
func TestReportIsWrittenByOneProcessAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := zktest.Start(t)
		first, second := locksOn(t, server), locksOn(t, server)
		cutOff := server.Sessions()[0].ID // the session of first, which connected first

		stopped := make(chan time.Time, 1)
		go func() {
			if err := writeReport(t.Context(), first, func() {}); !errors.Is(err, tier.ErrLost) {
				t.Error("of the process that is cut off:", err)
			}
			stopped <- time.Now()
		}()
		synctest.Wait() // now first has the lock

		server.Mute(cutOff, zktest.Request) // nothing that first sends arrives any more
		var began time.Time
		if err := writeReport(t.Context(), second, func() { began = time.Now() }); err != nil {
			t.Error("of the next process:", err)
		}
		if away := began.Sub(<-stopped); away <= 0 {
			t.Error("the next process began before the other one stopped, by", -away)
		}
	})
}

func locksOn(t *testing.T, server *zktest.Server) *tier.Registry {
	locks, err := zklock.Dial(t.Context(), "127.0.0.1:2181", zklock.WithDialContext(server.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}
