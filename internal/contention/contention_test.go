package contention_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/contention"
)

func TestLookingBeginsOnceAndOnlyWhenSomebodyAsks(t *testing.T) {
	for name, ask := range map[string]func(*contention.Signal){
		"C":   func(s *contention.Signal) { s.C() },
		"For": func(s *contention.Signal) { s.For() },
	} {
		looks := 0
		s := contention.New(func() { looks++ })
		if s.Raised() || looks != 0 {
			t.Errorf("%s: raised or looked for before anybody asked", name)
		}
		ask(s)
		ask(s)
		if looks != 1 {
			t.Errorf("%s: %d looks, want 1", name, looks)
		}
		raised := contention.New(func() { looks++ })
		raised.Raise(time.Now())
		if ask(raised); looks != 1 {
			t.Errorf("%s: looks for what is known", name)
		}
	}
}

func TestForCountsFromTheTimeGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := contention.New(func() {})
		if time.Sleep(time.Minute); s.For() != 0 {
			t.Errorf("For: %v, want 0", s.For())
		}
		asked := time.Now()
		time.Sleep(time.Second)
		s.Raise(asked)
		if s.For() != time.Second || !s.Raised() {
			t.Errorf("For: %v, want 1s", s.For())
		}
		<-s.C()
		now := contention.New(func() {})
		if now.Raise(time.Now()); now.For() <= 0 {
			t.Error("raised this instant counts as not raised")
		}
		ever := contention.New(func() {})
		if ever.Raise(time.Time{}); ever.For() < 24*time.Hour {
			t.Errorf("from the beginning of time: %v", ever.For())
		}
	})
}

func TestSuspicionCountsFromItsTimeAndRaisesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := contention.New(func() {})
		s.Suspect(time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		if d := s.For(); d != 0 {
			t.Errorf("%v before the time", d)
		}
		time.Sleep(1 + time.Second)
		if d := s.For(); d != time.Second || s.Raised() {
			t.Errorf("%v, raised: %v; want 1s, and not raised", d, s.Raised())
		}
		s.Raise(time.Now().Add(-time.Minute))
		if d := s.For(); d != time.Minute {
			t.Errorf("%v since somebody was seen, want a minute", d)
		}
	})
}
