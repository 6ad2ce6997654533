package tiertest

import (
	"context"
	"time"
)

var contendedPromises = []promise{
	{name: "contended", text: "A holder learns that another process waits, whether that process queued before or after the holder got the " +
		"lock; the signal then stays set", test: contended},
	{name: "contended-troubled", text: "A holder learns that another process waits, even if a message is lost",
		test: contendedAlthoughLost},
	{name: "uncontended", text: "While no process waits, a holder gets no signal of a waiting process", test: uncontended},
}

// The method news returns the time within which a holder has to learn of a waiter.
func (s *scene) news() time.Duration { return s.lease() / 3 }

func (s *scene) awaitContended(h *hold) {
	s.Helper()
	select {
	case <-h.Contended().C():
	case <-time.After(s.news() + s.slack()):
		s.Fatalf("the holder has not heard within %v that another process waits", s.news())
	}
}

func contended(s *scene) {
	a, b := s.process(), s.process()
	for _, asked := range []bool{false, true} {
		h := a.acquire()
		if asked {
			h.Contended().C()
			s.settled() // by then, the request that looks for waiters may have been answered
			if h.Contended().Raised() {
				s.Errorf("contended before anybody came")
			}
		}
		begun := time.Now()
		r := b.queue()
		s.awaitContended(h)
		if d := h.Contended().For(); d <= 0 || d > max(time.Since(begun), 1) {
			s.Errorf("contended for %v, want something within %v", d, time.Since(begun))
		}
		r.cancel()
		r.end()
		s.awaitLeft(1)
		if !h.Contended().Raised() || h.Contended().For() <= 0 {
			s.Errorf("not contended any more once the other one has left")
		}
		s.release(h)
	}
	s.none()
}

func contendedAlthoughLost(s *scene) {
	a, b := s.process(), s.process()
	s.each(a, lost, func(context.Context) {
		h := a.acquire()
		h.Contended().C()
		r := b.queue()
		s.awaitContended(h)
		s.release(h)
		s.release(r.granted())
		s.none()
	})
}

func uncontended(s *scene) {
	a, b := s.process(), s.process()
	s.used(b)
	h := a.acquire()
	b.refused() // a TryAcquire does not wait, and therefore does not count as a waiter
	select {
	case <-h.Contended().C():
		s.Errorf("contended, although no process waits")
	case <-time.After(s.Lease): // waits for a periodic read of the queue, which comes at least once in a lease
	}
	if d := h.Contended().For(); d != 0 {
		s.Errorf("contended for %v, although no process waits", d)
	}
	s.release(h)
	s.none()
}
