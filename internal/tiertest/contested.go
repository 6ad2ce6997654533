package tiertest

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var contestedPromises = []promise{
	{name: "contested", text: "A holder hears of another that waits, whoever came first, and for good", test: contested},
	{name: "contested-troubled", text: "A holder hears of another that waits although a message was lost", test: contestedAlthoughLost},
	{name: "uncontested", text: "A holder hears of nobody where nobody waits", test: uncontested},
	{name: "one-budget", text: "It hears of the hand-off budget of all who queue, the largest that any of them asks for",
		test: oneBudget},
}

// news is by when a holder has heard of somebody who waits.
func (s *scene) news() time.Duration { return s.lease() / 3 }

func (s *scene) awaitContested(h *hold) {
	s.Helper()
	select {
	case <-h.Contested().C():
	case <-time.After(s.news() + s.slack()):
		s.Fatalf("the holder has not heard within %v that another process waits", s.news())
	}
}

func contested(s *scene) {
	a, b := s.process(), s.process()
	for _, asked := range []bool{false, true} {
		h := a.acquire()
		if asked {
			h.Contested().C()
			s.settled() // the look may have been answered
			if h.Contested().Raised() {
				s.Errorf("contested before anybody came")
			}
		}
		begun := time.Now()
		r := b.queue()
		s.awaitContested(h)
		if d := h.Contested().For(); d <= 0 || d > max(time.Since(begun), 1) {
			s.Errorf("contested for %v, want something within %v", d, time.Since(begun))
		}
		r.cancel()
		r.end()
		s.awaitLeft(1)
		if !h.Contested().Raised() || h.Contested().For() <= 0 {
			s.Errorf("not contested any more once the other one has left")
		}
		s.release(h)
	}
	s.none()
}

func contestedAlthoughLost(s *scene) {
	a, b := s.process(), s.process()
	s.each(a, lost, func(context.Context) {
		h := a.acquire()
		h.Contested().C()
		r := b.queue()
		s.awaitContested(h)
		s.release(h)
		s.release(r.granted())
		s.none()
	})
}

func uncontested(s *scene) {
	a, b := s.process(), s.process()
	s.used(b)
	h := a.acquire()
	b.refused() // a try waits for nobody
	select {
	case <-h.Contested().C():
		s.Errorf("contested although nobody has come")
	case <-time.After(s.Lease): // of which any part may be the time of a look
	}
	if d := h.Contested().For(); d != 0 {
		s.Errorf("contested for %v although nobody has come", d)
	}
	s.release(h)
	s.none()
}

// oneBudget has three processes queue again and again, of which one asks for more than the others.
func oneBudget(s *scene) {
	slow, near := new(second.Prices), new(second.Prices)
	for range 9 {
		slow.Paid(5 * time.Millisecond)
		near.Paid(2 * time.Millisecond)
	}
	all := []*proc{s.process(), s.process().asking(slow), s.process().asking(near)}
	turns := []*request{all[0].begin(all[0].claim.Acquire)}
	turns[0].granted()
	for _, p := range all[1:] {
		turns = append(turns, p.queue())
	}
	for i := range 2 * len(all) {
		h := turns[i].granted()
		s.awaitContested(h)
		s.await("a holder knows the largest budget", s.news(), func() bool { return h.Budget() == slow.Said() })
		if near.Said() == 0 || near.Said() >= slow.Said() {
			s.Fatalf("budgets of %d and %d were said", near.Said(), slow.Said())
		}
		turns = append(turns, all[i%len(all)].requeue(s.Context(), h))
	}
	for _, r := range turns[2*len(all):] {
		s.release(r.granted())
	}
	s.none()
}
