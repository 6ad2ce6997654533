package election_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// A leader that is cut off from the server stops before another one can be chosen. When it is back, it queues behind the others.
func TestLeaderThatIsCutOffIsSucceeded(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		locks, link := dial(t, s, "a")
		a := candidateOf(t, locks, d, "a")
		var cause error
		lead := a.lead
		a.lead = func(ctx context.Context, term int64) error {
			defer func() {
				cause = context.Cause(ctx)
				need.That(t, "it leads although its term is over", a.IsLeader() != nil)
			}()
			return lead(ctx, term)
		}
		a.run()
		b := start(t, s, d, "b")[0]
		time.Sleep(time.Minute)
		heal := link.Cut()
		time.Sleep(sessionTimeout)
		b.leads(a)
		need.WantErr(t, "the end of the function's context", cause, tier.ErrLost)
		heal()
		time.Sleep(time.Minute)
		b.leads(a)
		b.reign <- election.ErrStop
		a.leads(b)
	})
}

// A leading function may ignore the loss and go on. Until the session ends, no other process leads, and this process does not campaign.
// There are no other effects.
func TestFunctionThatIgnoresTheLossStopsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		a := election.New(registry(t, s, "a"), path)
		begun, end, ended := make(chan int64, 1), make(chan struct{}), make(chan error)
		go func() {
			ended <- a.Run(t.Context(), func(_ context.Context, term int64) error {
				begun <- term
				<-end
				return election.ErrStop
			})
		}()
		<-begun
		b := start(t, s, new(diary), "b")[0]
		s.Expire(path, 0)
		time.Sleep(sessionTimeout)
		b.leads()
		need.WantErr(t, "IsLeader after the loss", a.IsLeader(), election.ErrNotLeader, tier.ErrLost)
		close(end)
		locktest.WantErr(t, "Run", <-ended, nil)
		b.leads()
	})
}
