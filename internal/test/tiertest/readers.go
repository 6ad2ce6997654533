package tiertest

import (
	"context"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var readerPromises = []promise{
	{name: "readers-share", text: "Readers of several processes hold the lock at the same time; a writer waits until all of them have " +
		"released the lock", test: readersShare},
	{name: "readers-order", text: "A reader queues behind a waiting writer, even while other readers hold the lock",
		test: readersKeepOrder},
	{name: "readers-try", text: "TryAcquire for reading succeeds if no writer holds the lock or waits for it; any other TryAcquire " +
		"succeeds if the lock is free",
		test: triesOfEachMode},
	{name: "readers-requeue", text: "A reader, a writer or a mutex can requeue in any of these modes: this takes one write, and goes to " +
		"the tail of the queue",
		alone: true,
		test:  requeueInEachMode},
	{name: "readers-tokens", text: "A writer's token is higher than all earlier tokens; a reader's token is higher than the tokens of all " +
		"earlier writers",
		test: tokensOfEachMode},
	{name: "readers-left", text: "If a reader's call is cancelled, or a message to it is lost, at any step, no unused entry stays in the " +
		"queue",
		test: nothingLeftByReaders},
}

var (
	modes = []second.Mode{second.Exclusive, second.Writing, second.Reading}
	alone = []second.Mode{second.Exclusive, second.Writing}
)

func readersShare(s *scene) {
	p := s.processes(3)
	for _, mode := range alone {
		var readers []*hold
		for _, p := range []*proc{p[0], p[1], p[0]} {
			readers = append(readers, p.as(second.Reading).acquire())
		}
		next := p[2].as(mode).queue()
		for _, i := range []int{1, 0, 2} {
			s.wait(next)
			s.release(readers[i])
		}
		h := next.granted()
		if h.Shared() {
			s.Errorf("a holder that does not read says that it shares the lock")
		}
		s.release(h)
		s.none()
	}
}

func readersKeepOrder(s *scene) {
	p := s.processes(4)
	for _, mode := range alone {
		reading := p[0].as(second.Reading).acquire()
		first := p[1].as(mode).queue()
		readers := []*request{p[2].as(second.Reading).queue(), p[3].as(second.Reading).queue()}
		later := p[0].as(mode).queue()
		last := p[1].as(second.Reading).queue()
		s.wait(first, readers[0], readers[1], later, last)
		s.release(reading)
		h := first.granted()
		s.wait(readers[0], readers[1], later, last)
		s.release(h)
		together := []*hold{readers[0].granted(), readers[1].granted()}
		s.wait(later, last)
		for _, h := range together {
			s.release(h)
		}
		h = later.granted()
		s.wait(last)
		s.release(h)
		s.release(last.granted())
		s.none()
	}
}

func triesOfEachMode(s *scene) {
	a, b, c := s.process(), s.process(), s.process()
	for _, held := range modes {
		h := a.as(held).takes()
		for _, mode := range modes {
			if held == second.Reading && mode == second.Reading {
				s.release(b.as(mode).takes())
			} else {
				b.as(mode).refused()
			}
		}
		waiting := c.as(second.Writing).queue()
		b.as(second.Reading).refused()
		s.release(h)
		s.release(waiting.granted())
		s.none()
	}
}

func requeueInEachMode(s *scene) {
	a, b, c := s.process(), s.process(), s.process()
	for _, from := range modes {
		for _, to := range modes {
			h := a.as(from).acquire()
			waiting := b.as(second.Writing).queue()
			var again *request
			var next *hold
			s.costs("a requeue", 1, 1, func() {
				again = a.as(to).requeue(s.Context(), h)
				next = waiting.granted()
				s.awaitLeft(2)
			})
			reader := c.as(second.Reading).queue()
			s.wait(again, reader)
			s.release(next)
			h = again.granted()
			if to == second.Reading {
				s.release(reader.granted())
				h = a.as(to).requeue(s.Context(), h).granted() // no other contender is in the queue, so the requeue succeeds at once
				s.release(h)
			} else {
				s.wait(reader)
				s.release(h)
				s.release(reader.granted())
			}
			s.none()
		}
	}
}

// tokensOfEachMode makes processes queue in all modes at once. The oracle checks the tokens.
func tokensOfEachMode(s *scene) {
	var all sync.WaitGroup
	for i, p := range s.processes(4) {
		var turns []*proc
		for n := range 9 {
			turns = append(turns, p.as(modes[(i+n)%len(modes)]))
		}
		all.Go(func() {
			for _, p := range turns {
				r := p.begin(p.claim.Acquire)
				if r.end(); r.err != nil {
					s.Errorf("not granted: %v", r.err)
					return
				}
				time.Sleep(s.moment() / 20)
				s.release(r.hold)
			}
		})
	}
	all.Wait()
	s.none()
}

func nothingLeftByReaders(s *scene) {
	holder, p := s.process(), s.process()
	for _, m := range []mishap{lost, cancelled, both} {
		s.each(p, m, func(ctx context.Context) { // the call ends at about the time of the grant
			h := holder.as(second.Writing).acquire()
			r := s.begin(ctx, p.as(second.Reading).claim.Acquire)
			s.settled()
			s.release(h)
			r.settle()
			s.none()
		})
	}
}

var readerContendedPromises = []promise{
	{name: "readers-contended", text: "Each reader learns that a writer waits behind it, whether the writer queued before or after the " +
		"reader got the lock",
		test: readersContended},
	{name: "readers-uncontended", text: "If only readers wait behind a reader, this reader gets no signal of a waiting process",
		test: readersUncontended},
}

func readersContended(s *scene) {
	a, b, c := s.process(), s.process(), s.process()
	for _, mode := range alone {
		for _, asked := range []bool{false, true} {
			readers := []*hold{a.as(second.Reading).acquire(), b.as(second.Reading).acquire()}
			if asked {
				for _, h := range readers {
					h.Contended().C()
				}
				s.settled() // by then, the request that looks for waiters may have been answered
			}
			r := c.as(mode).queue()
			for _, h := range readers {
				s.awaitContended(h)
				s.release(h)
			}
			s.release(r.granted())
			s.none()
		}
	}
}

func readersUncontended(s *scene) {
	p := s.processes(3)
	first := p[0].as(second.Reading).acquire()
	first.Contended().C()
	readers := []*hold{p[1].as(second.Reading).acquire(), p[2].as(second.Reading).acquire()}
	select {
	case <-first.Contended().C():
		s.Errorf("contended by readers")
	case <-time.After(s.Lease / 2):
	}
	for _, h := range append(readers, first) {
		if d := h.Contended().For(); d != 0 {
			s.Errorf("contended for %v by readers", d)
		}
		s.release(h)
	}
	s.none()
}
