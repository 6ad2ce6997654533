package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/tierlock/tierlock/internal/retry"
)

func TestPaceNeverGivesUpAndStaysBelowTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := retry.New()
		if first := pace.NextBackOff(); first <= 0 || first > 20*time.Millisecond {
			t.Errorf("first pause %v, want some 10 ms", first)
		}
		for range 100_000 {
			d := pace.NextBackOff()
			if d == backoff.Stop || d > 2*time.Second {
				t.Fatalf("pause %v", d)
			}
			time.Sleep(d)
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := retry.Pause(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		began = time.Now()
		if err := retry.Pause(ctx, time.Minute); !errors.Is(err, enough) || time.Since(began) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
	})
}
