package notice

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/logtest"
)

// Each answer of a server tells how much is left of its quarantine, and some come late.
func TestQuarantineIsWarnedOfOnceAndAgainWhenItGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, logger := logtest.New(slog.LevelInfo)
		c := NewConnection(Config{Logger: logger, Package: "storelock", Store: "Store",
			Why: func() error { return nil }, Patience: func() time.Duration { return time.Minute }})
		go c.Run(t.Context())
		c.Reach(true)
		c.Begin("1")
		answer := func(left, late time.Duration) {
			sent := time.Now()
			time.Sleep(late)
			c.Quarantined(left, sent, "the server is new")
		}
		warned := func(times int) {
			t.Helper()
			synctest.Wait()
			if lines := log.Lines(slog.LevelWarn, "storelock: no grants until "); len(lines) != times {
				t.Errorf("warned %d times, want %d: %s", len(lines), times, log)
			}
		}

		if q := c.Quarantine(); q != nil {
			t.Errorf("a quarantine before there is one: %v", q)
		}
		answer(0, 0)
		warned(0)
		end := time.Now().Add(10 * time.Second)
		answer(10*time.Second, 0)
		if q := c.Quarantine(); q == nil || !q.Until.Equal(end) ||
			q.Error() != "no grants until "+end.Format(time.TimeOnly)+": the server is new" {
			t.Errorf("quarantine %v, want one until %v", q, end)
		}
		answer(10*time.Second, 3*time.Second)
		if q := c.Quarantine(); q == nil || !q.Until.After(end) {
			t.Errorf("quarantine %v, want one as long as it may be", q)
		}
		answer(7*time.Second, 3*time.Second)
		warned(1)
		answer(time.Minute, time.Second) // somebody has a longer lease
		warned(2)
		time.Sleep(time.Minute)
		if q := c.Quarantine(); q != nil {
			t.Errorf("a quarantine that is over: %v", q)
		}
		answer(10*time.Second, 0)
		warned(3)
	})
}
