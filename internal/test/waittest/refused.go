package waittest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// RefusalTold checks how the library reports a store that can be reached, but refuses each acquisition until heal is called. Both the error
// of a wait and the registry have to report that.
func RefusalTold(t *testing.T, locks *tier.Registry, refuse func() (heal func()), mention string) {
	t.Helper()
	mu := locks.Mutex(Path(t))
	need.OK(t, mu.Do(Soon(t), func(context.Context) error { return nil }))
	heal := refuse()
	_, err := mu.Acquire(need.Within(t, 6*time.Second))
	var wait *tier.WaitError
	need.Must(t, "no WaitError: "+err.Error(), errors.As(err, &wait))
	need.That(t, "no refusal in "+err.Error(), wait.Refusal != nil)
	need.WantMention(t, err, mention)
	need.WantErr(t, "the wait", err, tier.ErrUnavailable)
	need.WantErr(t, "Err", locks.Err(), tier.ErrUnavailable)
	heal()
	need.OK(t, mu.Do(Soon(t), func(context.Context) error { return nil }))
	need.WantErr(t, "Err once it is served", locks.Err(), nil)
}
