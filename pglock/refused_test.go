package pglock

import (
	"context"
	"testing"

	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// A contender that enters a queue waits for a transaction that has locked the queue, but renewals do not wait. Refusal reports the problem.
func TestTransactionThatIsStuckInAQueueIsToldOf(t *testing.T) {
	t.Parallel()
	waittest.RefusalTold(t, tier.New(start(t)), func() (heal func()) {
		tx := begun(t, outside(t))
		_, err := tx.Exec(soon(t), "SELECT pg_advisory_xact_lock(tierlock.key($1))", lockPath(t))
		wantErr(t, err, nil)
		return func() { tx.Rollback(context.Background()) }
	}, "lock timeout")
}
