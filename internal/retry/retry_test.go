package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestPaceNeverGivesUpAndStaysBelowTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := retry.New()
		need.Between(t, "the first pause, of some 10 ms", pace.NextBackOff(), 1, 20*time.Millisecond)
		for range 100_000 {
			d := pace.NextBackOff()
			need.Must(t, fmt.Sprintf("pause %v", d), d != backoff.Stop && d <= 2*time.Second)
			time.Sleep(d)
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		need.WantErr(t, "Pause", retry.Pause(t.Context(), time.Minute), nil)
		need.Equal(t, "a pause of a minute took", time.Since(began), time.Minute)
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		began = time.Now()
		need.WantErr(t, "Pause", retry.Pause(ctx, time.Minute), enough)
		need.Equal(t, "a pause that ends with its context took", time.Since(began), time.Second)
	})
}
