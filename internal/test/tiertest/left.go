package tiertest

import "context"

var leftPromises = []promise{
	{name: "left-lost", text: "If any message is lost, the call still completes, and leaves no unused entry in the store",
		test: nothingLeftByLostMessages},
	{name: "left-cancelled", text: "If a call is cancelled at any step, it leaves no unused entry in the store", test: nothingLeftByCancelled},
	{name: "left-try", text: "TryAcquire leaves no unused entry, even if it is cancelled or a message is lost", test: nothingLeftByTries},
	{name: "left-close", text: "Close leaves no entry of the process in the store", test: nothingLeftByClose},
	{name: "left-kill", text: "Once the lease of a killed process has ended, the store has no entry of this process",
		test: nothingLeftByKilled},
}

func nothingLeftByLostMessages(s *scene) {
	holder, p := s.process(), s.process()
	s.each(p, lost, func(context.Context) {
		s.release(p.acquire())
		s.none()
	})
	s.each(p, lost, func(context.Context) {
		h := holder.acquire()
		r := p.queue()
		s.release(h)
		s.release(r.granted())
		s.none()
	})
}

func nothingLeftByCancelled(s *scene) {
	holder, p := s.process(), s.process()
	for _, m := range []mishap{cancelled, both} {
		s.each(p, m, func(ctx context.Context) {
			s.begin(ctx, p.claim.Acquire).settle()
			s.none()
		})
		s.each(p, m, func(ctx context.Context) {
			h := holder.acquire()
			r := s.begin(ctx, p.claim.Acquire)
			r.waits()
			r.cancel()
			r.settle()
			s.leftWithin(1, s.expiry())
			s.release(h)
			s.none()
		})
		s.each(p, m, func(ctx context.Context) { // the call ends at about the time of the grant
			h := holder.acquire()
			r := s.begin(ctx, p.claim.Acquire)
			s.settled()
			s.release(h)
			r.settle()
			s.none()
		})
	}
}

func nothingLeftByTries(s *scene) {
	holder, p := s.process(), s.process()
	for _, m := range []mishap{lost, cancelled, both} {
		s.each(p, m, func(ctx context.Context) {
			s.begin(ctx, p.claim.TryAcquire).settle()
			s.none()
		})
		s.each(p, m, func(ctx context.Context) {
			h := holder.acquire()
			r := s.begin(ctx, p.claim.TryAcquire)
			if r.end(); r.err == nil {
				s.Errorf("a try got what another process holds")
			}
			s.leftWithin(1, s.expiry())
			s.release(h)
			s.none()
		})
	}
}

func nothingLeftByClose(s *scene) {
	a, b, c := s.process(), s.process(), s.process()
	h := a.acquire()
	waiting, next := b.queue(), c.queue()
	if err := b.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	if waiting.end(); waiting.err == nil {
		s.Errorf("a waiter is granted the lock by a tier that is closed")
	}
	s.leftWithin(2, s.lease()/3)
	h.leave()
	if err := a.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	s.leftWithin(1, s.lease()/3)
	s.release(next.granted())
	s.none()
}

func nothingLeftByKilled(s *scene) {
	a, b, c := s.victim(), s.victim(), s.process()
	s.needs(a.Kill != nil, "kill a process")
	h := a.acquire()
	b.queue()
	next := c.queue()
	h.leave()
	b.Kill() // killed before a, because b could otherwise get the lock and keep it until its lease ends
	a.Kill()
	s.leftWithin(1, 2*s.Lease)
	s.release(next.granted())
	s.none()
}
