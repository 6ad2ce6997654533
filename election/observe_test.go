package election_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestLeaderIsTheOneThatLeads(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		observer := election.New(registry(t, s, "observer"), path)
		need.WantErr(t, "Leader before there is one", need.ErrOf(observer.Leader(t.Context())), election.ErrNoLeader)
		p := start(t, s, d, "a", "b")
		_, term := d.reigns()
		for _, e := range []*election.Election{observer, p[0].Election, p[1].Election} {
			leader := need.Get(e.Leader(t.Context()))(t)
			need.Equal(t, "Leader", [3]any{leader.Label, leader.Token, leader.PID}, [3]any{"a", term, os.Getpid()})
		}
		p[0].stop()
		p[1].leads(p[0])
		_, term = d.reigns()
		leader := need.Get(observer.Leader(t.Context()))(t)
		need.Equal(t, "Leader", [2]any{leader.Label, leader.Token}, [2]any{"b", term})
	})
}

// An observation records the leaders that an observer has received.
type observation struct {
	labels []string
	terms  []int64
	err    error
	stop   context.CancelFunc
	ended  chan struct{}
}

func observe(t *testing.T, e *election.Election) *observation {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	o := &observation{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				o.err = err
				continue
			}
			o.labels, o.terms = append(o.labels, leader.Label), append(o.terms, leader.Token)
		}
	}()
	t.Cleanup(func() { stop(); <-o.ended })
	return o
}

func (o *observation) saw(t *testing.T, labels string) {
	t.Helper()
	time.Sleep(2 * time.Second) // the next poll happens in this time
	synctest.Wait()
	need.Equal(t, "observed", strings.Join(o.labels, ""), labels)
	need.WantErr(t, "observed", o.err, nil)
	for i, term := range o.terms {
		need.That(t, fmt.Sprintf("terms %v, want them to grow", o.terms), i == 0 || term > o.terms[i-1])
	}
}

func TestObserverSeesEachLeaderOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		o := observe(t, election.New(registry(t, s, "observer"), path))
		o.saw(t, "")
		p := start(t, s, new(diary), "a", "b")
		o.saw(t, "a")
		time.Sleep(time.Minute)
		o.saw(t, "a")
		p[0].reign <- nil
		o.saw(t, "ab")
		p[1].stop()
		o.saw(t, "aba")
		p[0].stop()
		o.saw(t, "aba")
		start(t, s, new(diary), "c")
		o.saw(t, "abac")
		o.stop()
		<-o.ended
		need.WantErr(t, "the end of the context", o.err, nil)
	})
}

func TestTheEndOfAnObservationIsNoError(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		p := start(t, s, new(diary), "a")
		o := observe(t, election.New(registry(t, s, "observer"), path))
		o.saw(t, "a")
		thaw := s.Freeze() // ends the observation in the middle of a poll
		time.Sleep(5 * time.Second)
		o.stop()
		<-o.ended
		o.saw(t, "a")
		thaw()
		p[0].stop()
	})
}

// A server that lags behind may show an earlier leader, and a server that hides tokens shows no token. The observer must not report an
// earlier leader.
func TestObserverNeverGoesBack(t *testing.T) {
	leader := func(id string, term int64) tier.Contender { return tier.Contender{ID: id, Token: term} }
	for _, c := range []struct {
		leader, last tier.Contender
		want         bool
	}{
		{leader("a", 5), tier.Contender{}, true},
		{leader("a", 5), leader("a", 5), false},
		{leader("b", 7), leader("a", 5), true},
		{leader("a", 7), leader("a", 5), true}, // on etcd a name may be used again
		{leader("a", 5), leader("b", 7), false},
		{leader("a", 0), tier.Contender{}, true},
		{leader("a", 0), leader("a", 0), false},
		{leader("b", 0), leader("a", 0), true},
		{leader("a", 5), leader("a", 0), false},
		{leader("b", 0), leader("a", 5), true},
	} {
		need.Equal(t, fmt.Sprintf("%+v after %+v", c.leader, c.last), election.Succeeds(c.leader, c.last), c.want)
	}
}

func TestObserverIsToldWhatNoLookWouldChange(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := registry(t, s, "observer")
		o := observe(t, election.New(locks, ""))
		<-o.ended
		need.That(t, "Observe of a path that cannot be a lock ended without an error", o.err != nil)
		o = observe(t, election.New(locks, path))
		start(t, s, new(diary), "a")
		o.saw(t, "a")
		locks.Close()
		<-o.ended
		need.WantErr(t, "Observe of a registry that is closed", o.err, tier.ErrClosed)
	})
}
