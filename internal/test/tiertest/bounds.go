package tiertest

import (
	"context"
	"errors"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/second"
)

var boundPromises = []promise{
	{name: "bounds-cut", text: "Release returns within a third of the lease, and a cancelled call returns at once, even if the process is " +
		"cut off from the store", test: boundedWhenCutOff},
	{name: "bounds-frozen", text: "Release returns within a third of the lease, and a cancelled call returns at once, even if the store " +
		"stops answering", alone: true, test: boundedWhenFrozen},
	{name: "bounds-messages", text: "Release returns within a third of the lease, and a cancelled call returns at once, whichever message " +
		"is delayed", test: boundedAtEachMessage},
	{name: "unreachable", text: "A process that is cut off reports that it has no connection; TryAcquire then fails at once, and other " +
		"calls wait", test: unreachable},
}

func boundedWhenCutOff(s *scene) {
	a, b := s.victim(), s.process()
	s.needs(a.Cut != nil, "cut a process off")
	h := a.acquire()
	r := a.queue()
	heal := s.cut(a)
	s.bounded(a, h, r)
	heal()
	s.release(b.acquire())
	s.none()
}

func boundedWhenFrozen(s *scene) {
	s.needs(s.Freeze != nil, "freeze the store")
	a, b := s.victim(), s.process()
	h := a.acquire()
	r := b.queue()
	thaw := s.freeze()
	s.bounded(a, h, r)
	thaw()
	s.release(b.acquire())
	s.none()
}

// The method bounded checks that calls end in time while the store does not answer. The process p has the hold h, and r is a waiting call.
func (s *scene) bounded(p *proc, h *hold, r *request) {
	for _, r := range []*request{r, p.begin(p.claim.Acquire), p.begin(p.claim.TryAcquire)} {
		s.settled()
		r.leaves()
	}
	s.within(p.lease/3, "Release", func() { h.Release() })
}

func unreachable(s *scene) {
	a, b := s.victim(), s.process()
	s.needs(a.Cut != nil, "cut a process off")
	h := b.acquire()
	if err := a.Err(); err != nil {
		s.Errorf("Err of a tier that is connected: %v", err)
	}
	heal := s.cut(a)
	s.await("the tier says that it is cut off", s.Lease, func() bool { return a.Err() != nil })
	s.within(0, "a try", func() {
		r := a.begin(a.claim.TryAcquire)
		if r.end(); r.err == nil || errors.Is(r.err, second.ErrLocked) || errors.Is(r.err, second.ErrClosed) {
			s.Errorf("a try by a process that is cut off: %v", r.err)
		}
	})
	r := a.begin(a.claim.Acquire)
	heal()
	s.release(h)
	s.release(r.granted())
	if err := a.Err(); err != nil {
		s.Errorf("Err of a tier that is connected again: %v", err)
	}
	s.none()
}

// boundedAtEachMessage delays each message of a call in turn, and makes the caller leave while the message is delayed.
func boundedAtEachMessage(s *scene) {
	p := s.victim()
	s.needs(p.Messages != nil, "hold a message up")
	for n := 1; ; n++ {
		if n == manyMessages {
			s.Fatalf("more than %d messages", n)
		}
		var r *request
		met, left := make(chan struct{}), make(chan struct{})
		messages := make(chan int, 1)
		messages <- 0
		p.Messages(func() bool {
			i := <-messages + 1
			messages <- i
			if i == n {
				close(met)
				<-left
			}
			return false
		})
		r = p.begin(p.claim.Acquire)
		select {
		case <-met:
			s.within(0, "a cancelled call", func() {
				r.cancel()
				r.end()
			})
			if r.err == nil {
				r.hold.leave()
			}
			close(left)
			r.settle()
			p.Messages(nil)
			s.none()
			continue
		case <-r.done:
		}
		h := r.granted()
		released := make(chan struct{})
		go func() {
			defer close(released)
			s.within(p.lease/3, "Release", func() { h.Release() })
		}()
		select {
		// A message of the release is being delayed.
		case <-met:
			<-released
			close(left)
		case <-released:
			select {
			case <-met:
				close(left)
			default:
				close(left) // no message is delayed now, but one may be about to arrive
				p.Messages(nil)
				s.none()
				return
			}
		}
		p.Messages(nil)
		s.none()
	}
}

var tryPromises = []promise{
	{name: "try-writes", text: "TryAcquire writes nothing if the lock is taken", alone: true, test: tryWritesNothing},
	{name: "try-race", text: "If another process requests the lock during a TryAcquire, at most one of them gets the lock",
		test: tryWhileOthersCome},
}

func tryWhileOthersCome(s *scene) {
	p, other := s.process(), s.process()
	s.used(other)
	comes := make(chan *request, 1)
	come := func() {
		before := s.present()
		r := other.begin(other.claim.Acquire)
		comes <- r
		s.poll(s.patience(), func() bool { return r.ended() || s.Left(s.path) > before })
	}
	s.each(p, mishap{name: "another process comes", do: come}, func(ctx context.Context) {
		r := s.begin(ctx, p.claim.TryAcquire)
		if r.end(); r.err == nil {
			s.release(r.hold)
		} else if !errors.Is(r.err, second.ErrLocked) {
			s.Errorf("TryAcquire: %v, want ErrLocked", r.err)
		}
		s.await("nobody is left", s.expiry(), func() bool {
			select {
			case r := <-comes: // the grant may come early, if the delayed message is one that follows the answer
				s.release(r.granted())
			default:
			}
			return s.Left(s.path) == 0
		})
	})
}

func tryWritesNothing(s *scene) {
	a, b, c := s.process(), s.process(), s.process()
	s.used(a)
	h := a.acquire()
	b.refused() // after this, b sees the holder, whichever server it asks
	s.costs("tries of a lock that is held", 0, 0, func() {
		for range 5 {
			b.refused()
		}
	})
	r := c.queue()
	a.refused()
	s.costs("tries of a lock that others wait for", 0, 0, func() {
		for range 5 {
			b.refused()
			a.refused()
		}
	})
	s.release(h)
	s.release(r.granted())
	s.release(b.takes())
	s.none()
}

var closePromises = []promise{
	{name: "close", text: "Close ends all holds and all calls of the process, and leaves no goroutine", alone: true, test: closeEndsAll},
	{name: "release-once", text: "Release removes the queue entry before it returns; a second Release changes nothing", test: givenUpOnce},
}

// leavesNoGoroutine runs play, and counts the goroutines that play leaves behind. If there are some, it runs play again, because they may
// belong to a harness that has just connected again.
func (s *scene) leavesNoGoroutine(play func(a, b *proc)) {
	var left error
	for range 3 {
		if left = s.goroutinesLeftBy(play); left == nil {
			return
		}
	}
	s.Errorf("%v", left)
}

func (s *scene) goroutinesLeftBy(play func(a, b *proc)) error {
	running := goleak.IgnoreCurrent()
	inside := &scope{TB: s.witness.TB}
	defer inside.end() // also ends the processes if the test is skipped
	play(s.processIn(inside, s.lease()), s.processIn(inside, s.lease()))
	inside.end()
	return goleak.Find(running) // goleak itself repeats the search for a while
}

func closeEndsAll(s *scene) { s.leavesNoGoroutine(s.closeEnds) }

func (s *scene) closeEnds(a, b *proc) {
	h := a.acquire()
	waiting := a.queue()
	h.leave()
	h.Contended().C()
	for range 2 {
		s.within(s.lease()/3, "Close", func() {
			if err := a.Close(); err != nil {
				s.Errorf("Close: %v", err)
			}
		})
	}
	if waiting.end(); !errors.Is(waiting.err, second.ErrClosed) {
		s.Errorf("a waiter gets %v, want ErrClosed", waiting.err)
	}
	select {
	case <-a.Tier.Context().Done():
	default:
		s.Errorf("the context of the tier has not ended")
	}
	if err := a.Err(); !errors.Is(err, second.ErrClosed) {
		s.Errorf("Err: %v, want ErrClosed", err)
	}
	if err := h.lost(); err != nil {
		s.Errorf("after Close %v, want ErrLost", err)
	}
	s.closed("Acquire", a, a.claim.Acquire)
	s.closed("TryAcquire", a, a.claim.TryAcquire)
	s.closed("Requeue", a, func(ctx context.Context) (second.Grant, error) { return a.claim.Requeue(ctx, h.Grant) })
	s.closed("Contenders", a, func(ctx context.Context) (second.Grant, error) {
		_, err := a.claim.Contenders(ctx)
		return nil, orNothing(err)
	})
	s.release(b.acquire())
	s.none()
}

// The method closed checks that a call fails at once because the tier is closed.
func (s *scene) closed(name string, p *proc, call func(context.Context) (second.Grant, error)) {
	s.Helper()
	s.within(0, name+" after Close", func() {
		r := p.begin(call)
		if r.end(); !errors.Is(r.err, second.ErrClosed) {
			s.Errorf("%s after Close: %v, want ErrClosed", name, r.err)
		}
	})
}

// The method delay delays every message to p. It returns the duration of the delay.
func (s *scene) delay(p *proc) time.Duration {
	if p.Messages == nil {
		return 0
	}
	late := 2 * s.moment()
	p.Messages(func() bool { time.Sleep(late); return false })
	s.Cleanup(func() { p.Messages(nil) })
	return late
}

func givenUpOnce(s *scene) {
	a, b := s.process(), s.process()
	h := a.acquire()
	if err := h.Err(); err != nil {
		s.Errorf("Err of a grant: %v", err)
	}
	if !h.Idle() || !h.Leased() && !h.Confirm() {
		s.Errorf("a grant under which nothing was sent is idle: %t, confirmed: %t", h.Idle(), h.Confirm())
	}
	if h.Unsettle(); h.Idle() {
		s.Errorf("a grant is idle although the program has unsettled it")
	}
	begun, late := time.Now(), s.delay(a)
	s.release(h)
	if took := time.Since(begun); took < late {
		s.Errorf("Release returned after %v, although no answer came before %v", took, late)
	}
	if n := s.present(); n != 0 {
		s.Errorf("%d contenders when Release has returned", n)
	}
	next := b.acquire()
	if err := h.Err(); !errors.Is(err, second.ErrReleased) {
		s.Errorf("Err after Release: %v, want ErrReleased", err)
	}
	if err := h.Grant.Release(); !errors.Is(err, second.ErrReleased) {
		s.Errorf("second Release: %v, want ErrReleased", err)
	}
	if h.Context().Err() != nil {
		s.Errorf("the context ended although the grant was given up and not lost: %v", context.Cause(h.Context()))
	}
	r := a.begin(func(ctx context.Context) (second.Grant, error) { return a.claim.Requeue(ctx, h.Grant) })
	if r.end(); !errors.Is(r.err, second.ErrReleased) {
		s.Errorf("Requeue after Release: %v, want ErrReleased", r.err)
	}
	if err := next.Err(); err != nil {
		s.Errorf("the next one: %v", err)
	}
	s.release(next)
	s.none()
}
