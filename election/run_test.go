package election_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestFunctionReturnsBeforeTheLockGoes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		slow := newProcess(t, s, d, "slow")
		told := make(chan struct{})
		lead := slow.lead
		slow.lead = func(ctx context.Context, term int64) error {
			return lead(context.WithoutCancel(ctx), term) // ignores the end of its context until the test sends to reign
		}
		slow.run()
		next := start(t, s, d, "next")[0]
		slow.leads(next)
		context.AfterFunc(slow.ctx, func() { close(told) })
		slow.stop()
		<-told
		time.Sleep(10 * sessionTimeout) // this time is virtual
		synctest.Wait()
		need.Equal(t, "who leads while the function of the one before is at work", d.leader(), "slow")
		slow.follows() // the context of slow has ended
		slow.reign <- nil
		slow.returns(context.Canceled)
		next.leads(slow)
	})
}

func TestPauseGrowsWhileTheFunctionFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		const long = 10 * time.Second // only a term of at least this length is followed by a short pause
		start := time.Now()
		var pauses []time.Duration
		var ended time.Time
		p := newProcess(t, s, new(diary), "a")
		p.lead = func(context.Context, int64) error {
			pauses = append(pauses, time.Since(ended))
			if time.Since(start) > time.Minute {
				time.Sleep(long)
			}
			ended = time.Now()
			return errors.New("a failure")
		}
		p.run()
		time.Sleep(time.Minute + 3*long)
		p.stop()
		<-p.ended
		need.Between(t, "terms in a minute, about one a second", len(pauses), 30, 90)
		need.AtMost(t, "the first pause, of some 10 ms", pauses[1], 20*time.Millisecond)
		need.AtMost(t, "the pause behind a long term, of some 10 ms", pauses[len(pauses)-1], 20*time.Millisecond)
	})
}

// The registry has options for its locks. They must not apply to elections.
func TestElectionIsStrict(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := registry(t, s, "a", tier.WithLinger(time.Hour), tier.WithMaxWait(time.Second))
		a := candidateOf(t, locks, new(diary), "a")
		a.Election = election.New(locks, path, tier.WithLinger(time.Hour), tier.WithMaxWait(time.Second))
		b := start(t, s, a.diary, "b")[0]
		a.run()
		time.Sleep(time.Minute)
		b.leads(a)
		b.reign <- election.ErrStop
		a.leads(b)
		a.reign <- election.ErrStop
		a.returns(nil)
		need.Equal(t, "candidates are left", len(s.Queue(path)), 0)
	})
}

func TestStopEndsTheCampaign(t *testing.T) {
	why := errors.New("the work is done")
	for _, c := range []struct{ led, want error }{
		{election.ErrStop, nil},
		{errors.Join(election.ErrStop, why), why},
	} {
		bubble(t, func(t *testing.T, s *memory.Server) {
			p := start(t, s, new(diary), "a", "b")
			p[0].reign <- c.led
			p[0].returns(c.want)
			p[1].leads(p[0])
			time.Sleep(time.Minute)
			need.Equal(t, "candidates after one has stopped", len(s.Queue(path)), 1)
			p[0].run() // runs again
			p[1].reign <- election.ErrStop
			p[1].returns(nil)
			p[0].leads(p[1])
		})
	}
}

func TestPanicResigns(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":          func() { panic("in the function") },
		"runtime.Goexit": runtime.Goexit,
	} {
		bubble(t, func(t *testing.T, s *memory.Server) {
			d := new(diary)
			p := newProcess(t, s, d, "a")
			lead := p.lead
			p.lead = func(ctx context.Context, term int64) error {
				lead(ctx, term)
				end()
				return nil
			}
			p.run()
			next := start(t, s, d, "b")[0]
			p.leads(next)
			p.reign <- nil
			<-p.ended
			need.That(t, fmt.Sprintf("Run: got %v, want the panic", p.err), name != "panic" || p.err.Error() == "panic: in the function")
			next.leads(p)
		})
	}
}

func TestErrorOfTheFunctionIsReturnedAtTheEnd(t *testing.T) {
	why := errors.New("work is left over")
	for _, c := range []struct {
		led  func(context.Context) error
		want string
	}{
		{func(ctx context.Context) error { return ctx.Err() }, "election: run /elections/a: the end"},
		{func(ctx context.Context) error { return context.Cause(ctx) }, "election: run /elections/a: the end"},
		{func(context.Context) error { return nil }, "election: run /elections/a: the end"},
		{func(context.Context) error { return why }, "election: run /elections/a: the end: work is left over"},
	} {
		bubble(t, func(t *testing.T, s *memory.Server) {
			e := election.New(registry(t, s, "a"), path)
			ctx, cancel := context.WithCancelCause(t.Context())
			end := errors.New("the end")
			time.AfterFunc(time.Minute, func() { cancel(end) })
			err := e.Run(ctx, func(ctx context.Context, _ int64) error {
				<-ctx.Done()
				return c.led(ctx)
			})
			need.WantErr(t, "Run", err, end)
			need.Equal(t, "Run", fmt.Sprint(err), c.want)
		})
	}
}

func TestLeaderCannotCampaignWithinItsTerm(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		e := election.New(registry(t, s, "a"), path)
		err := e.Run(t.Context(), func(ctx context.Context, _ int64) error {
			err := e.Run(ctx, func(context.Context, int64) error { t.Error("leads in its own term"); return nil })
			return errors.Join(election.ErrStop, err)
		})
		need.WantMention(t, err, "the context belongs to a leader")
	})
}

// Several calls of Run in one process count as several candidates. Other processes can still become leaders.
func TestCallsOfOneProcessCompeteLikeProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		locks := registry(t, s, "a", tier.WithHandOff(time.Hour))
		a1, a2 := candidateOf(t, locks, d, "a1"), candidateOf(t, locks, d, "a2")
		a2.Election = a1.Election
		a1.run()
		b := newProcess(t, s, d, "b").run()
		a2.run()
		time.Sleep(time.Minute)
		need.Equal(t, "who leads", d.leader(), "a1")
		a1.reign <- election.ErrStop
		b.leads(a1)
		b.reign <- election.ErrStop
		a2.leads(b)
		a2.stop()
		a2.returns(context.Canceled)
		got, _ := d.reigns()
		need.List(t, "leaders", got, "a1", "b", "a2")
	})
}

func TestRunReturnsWhatTryingAgainCannotChange(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := registry(t, s, "a")
		lead := func(context.Context, int64) error { t.Error("leads"); return nil }
		need.That(t, "Run on a path that cannot be a lock: no error", election.New(locks, "").Run(t.Context(), lead) != nil)
		d := new(diary)
		leader := candidateOf(t, locks, d, "a").run()
		other := registry(t, s, "b")
		candidate := candidateOf(t, other, d, "b").run()
		leader.leads(candidate)
		other.Close()
		candidate.returns(tier.ErrClosed)
		locks.Close()
		leader.returns(tier.ErrClosed)
	})
}
