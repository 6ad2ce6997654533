package tiertest

import (
	"context"
	"time"
)

var contestedPromises = []promise{
	{name: "contested", text: "A holder hears of another that waits, whoever came first, and for good", test: contested},
	{name: "contested-troubled", text: "A holder hears of another that waits although a message was lost", test: contestedAlthoughLost},
	{name: "uncontested", text: "A holder hears of nobody where nobody waits", test: uncontested},
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
