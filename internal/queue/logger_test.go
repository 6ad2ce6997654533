package queue

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

type hanging struct {
	slog.Handler
	until <-chan struct{}
}

func (h hanging) Enabled(context.Context, slog.Level) bool {
	<-h.until
	return false
}

// The goroutine that renews the session logs refusals, and the goroutines that remove lost contenders log, too. A logger that blocks must
// delay neither.
func TestLoggerThatHangsKeepsNoSessionFromBeingRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, stuck := newFake(t, Config{}), make(chan struct{})
		defer close(stuck)
		f.Tier = New(Config{Package: "fake", Store: "Fake", Lost: func(Ref) string { return "" },
			Settings: second.Settings{TTL: ttl, Logger: slog.New(hanging{slog.DiscardHandler, stuck})}}, f)
		f.Start()
		synctest.Wait()
		f.then(Beat, says(Answer{Outcome: Denied, Err: errRefused}))
		time.Sleep(ttl / 2)
		f.Deafen(errAway)
		f.Deafen(nil)
		f.InGracePeriod(time.Millisecond, time.Now(), "of a test")
		time.Sleep(ttl / 2)
		h := f.acquire(second.Exclusive)
		time.Sleep(2 * ttl)
		wantErr(t, "Err of a lock after two leases", h.Err(), nil)
		wantErr(t, "Release", h.Release(), nil)
		begun := time.Now()
		f.Close()
		need.Equal(t, "Close takes", time.Since(begun), time.Second)
	})
}
