package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestOutageShorterThanTheLeaseChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		d := new(diary)
		p := start(t, srv, d, "a", "b")
		time.Sleep(time.Minute)
		srv.Freeze()
		time.Sleep(sessionTimeout / 4)
		p[0].leads(p[1])
		srv.Unfreeze()
		time.Sleep(time.Minute)
		p[0].leads(p[1])
		if leaders, _ := d.reigns(); len(leaders) != 1 {
			t.Errorf("leaders %q, want one", leaders)
		}
	})
}

// Cut off from the server, the leader stops before another can be chosen, and takes part again
// when it is back, behind the others.
func TestLeaderThatIsCutOffIsSucceeded(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		d := new(diary)
		a := newProcess(t, srv, d, "a")
		var cause error
		lead := a.lead
		a.lead = func(ctx context.Context, term int64) error {
			defer func() {
				if cause = context.Cause(ctx); a.IsLeader(ctx) == nil {
					t.Error("it leads although its term is over")
				}
			}()
			return lead(ctx, term)
		}
		a.run()
		b := start(t, srv, d, "b")[0]
		time.Sleep(time.Minute)
		victim := session(t, srv, "a")
		srv.Mute(victim, zktest.Request)
		time.Sleep(sessionTimeout)
		b.leads(a)
		if !errors.Is(cause, tier.ErrLost) {
			t.Errorf("the context of the function ended with %v, want ErrLost", cause)
		}
		srv.Unmute(victim, zktest.Request)
		time.Sleep(time.Minute)
		b.leads(a)
		b.reign <- election.ErrStop
		a.leads(b)
	})
}

// A function that goes on after the loss keeps others from leading for as long as the session
// lasts, and itself from campaigning; nothing more.
func TestFunctionThatIgnoresTheLossStopsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		a := election.New(registry(t, srv, "a"), path)
		begun, end, ended := make(chan int64, 1), make(chan struct{}), make(chan error)
		go func() {
			ended <- a.Run(t.Context(), func(_ context.Context, term int64) error {
				begun <- term
				<-end
				return election.ErrStop
			})
		}()
		<-begun
		b := start(t, srv, new(diary), "b")[0]
		srv.Expire(session(t, srv, "a"))
		time.Sleep(sessionTimeout)
		b.leads()
		if err := a.IsLeader(t.Context()); !errors.Is(err, election.ErrNotLeader) || !errors.Is(err, tier.ErrLost) {
			t.Errorf("IsLeader after the loss: got %v, want ErrNotLeader and ErrLost", err)
		}
		close(end)
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		b.leads()
	})
}

func TestOutageOfTheStoreEndsNoCampaign(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		d := new(diary)
		p := start(t, srv, d, "a", "b")
		time.Sleep(time.Minute)
		srv.Freeze()
		time.Sleep(10 * sessionTimeout)
		synctest.Wait()
		if d.leader() != "" {
			t.Errorf("%s leads without a store", d.leader())
		}
		srv.Unfreeze()
		time.Sleep(time.Minute)
		synctest.Wait()
		if d.leader() == "" {
			t.Fatal("nobody leads after the outage")
		}
		for _, p := range p {
			p.stop()
			p.returns(context.Canceled)
		}
	})
}
