package interop_test

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// Curator's LeaderSelector and an election of tierlock at the same path are one election. Each waits for the other, takes over when the
// other resigns or is killed, and sees the other as the leader.
func TestLeaderSelectorIsTheSameElection(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	e := newEnsemble(t)
	drivers := launch(t, e, timeout, "curator-leader", "election", "curator-leader", "election", "curator-leader")
	observer := launch(t, e, timeout, "curator-leader")[0]
	for i, d := range drivers {
		d.order(t, "acquire")
		e.awaitChildren(t, i+1)
	}
	names := map[string]string{"curator-leader": "curator", "election": "ours"}
	var ended time.Time
	for i, d := range drivers {
		d.answer(t)
		if i > 0 {
			t.Logf("%s leads, %v after the one before has gone", d.kind, time.Since(ended).Round(time.Millisecond))
		}
		for _, later := range drivers[i+1:] {
			need.That(t, later.kind+" did not wait for "+d.kind, len(later.answers) == 0)
		}
		need.Equal(t, "the leader that Curator sees", observer.do(t, "leader").Leader, names[d.kind])
		ended = time.Now()
		if i < 2 {
			d.kill()
		} else {
			d.release(t)
		}
	}
	e.awaitChildren(t, 0)
}
