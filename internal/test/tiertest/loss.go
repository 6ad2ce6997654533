package tiertest

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var lossPromises = []promise{
	{name: "loss-cut", text: "A holder that is cut off from the store learns of its loss before its lease ends, and before another " +
		"process gets the lock", test: cutOff},
	{name: "loss-readers", text: "A reader that is cut off learns of its loss in time, also if it has downgraded; the other readers keep " +
		"the lock", test: readersCutOff},
	{name: "loss-frozen", text: "A holder knows in advance when its lease ends, and learns of its loss before that time if the store " +
		"stops answering", alone: true, test: frozen},
	{name: "loss-stopped", text: "A holder whose process was stopped and then continues finds its loss at the first check", test: stopped},
	{name: "loss-slept", text: "A holder whose machine slept for longer than the lease finds its loss at the first check", test: slept},
	{name: "removal", text: "If an operator removes a holder, the former holder soon learns of its loss", test: removed},
	{name: "no-loss", text: "If the holder kept the lock until its release, the release reports no loss, whichever notifications the " +
		"holder listens to", test: noLoss},
	{name: "loss-release", text: "If a release finds that the holder was removed, the release reports the loss, and the context of the " +
		"hold ends",
		test: foundByRelease},
	{name: "loss-requeue", text: "If a requeue finds that the holder was removed, the release in this requeue reports the loss",
		test: foundByRequeue},
}

func cutOff(s *scene) {
	a, b := s.victim(), s.process()
	s.needs(a.Cut != nil, "cut a process off")
	h := a.acquire()
	r := b.queue()
	struck := time.Now()
	heal := s.cut(a)
	s.awaitLoss(h, struck, r)
	next := r.granted()
	heal()
	s.staysLost(h)
	s.release(next)
	s.none()
}

func readersCutOff(s *scene) {
	a, b, c, d := s.victim(), s.victim(), s.process(), s.process()
	s.needs(a.Cut != nil, "cut a process off")
	first := a.as(second.Writing).acquire()
	reader := s.shared(first, b)
	other := c.as(second.Reading).acquire()
	r := d.as(second.Writing).queue()
	struck := time.Now()
	heals := []func(){s.cut(a), s.cut(b)}
	s.awaitLoss(first, struck, r)
	s.awaitLoss(reader, struck, r)
	if err := other.Err(); err != nil {
		s.Errorf("a reader that was not cut off: %v", err)
	}
	s.release(other)
	next := r.granted()
	for _, heal := range heals {
		heal()
	}
	s.staysLost(first)
	s.staysLost(reader)
	s.release(next)
	s.none()
}

// The store is frozen until the holder knows of its loss, and may still have the contender then. If freezing the store takes as long as the
// lease, the lock may be lost before that.
func frozen(s *scene) {
	s.needs(s.Freeze != nil, "freeze the store")
	a, b := s.victim(), s.process()
	h := a.acquire()
	r := b.queue()
	thaw := s.freeze()
	struck := time.Now() // until this moment, the store may have answered a renewal
	end := h.ValidUntil()
	switch {
	case end.IsZero() && h.Err() == nil:
		s.Errorf("a grant that is not lost has no end")
	case !end.IsZero() && (end.Before(struck) || end.After(struck.Add(s.Lease))):
		s.Errorf("the lease ends %v after the store has stopped, want within %v", end.Sub(struck), s.Lease)
	}
	s.awaitLoss(h, struck, r)
	if early := time.Until(end); early > 0 {
		s.Errorf("the loss came %v before the end of the lease", early)
	}
	if end := h.ValidUntil(); !end.IsZero() {
		s.Errorf("a lost grant is valid until %v", end)
	}
	thaw()
	s.staysLost(h)
	s.release(r.granted())
	s.none()
}

// awaitLoss waits until h is lost. The last renewal of the lease was before struck. The loss has to come before that lease ends, and before
// another process gets the lock.
func (s *scene) awaitLoss(h *hold, struck time.Time, other *request) {
	s.Helper()
	select {
	case <-h.Context().Done():
	case <-other.done: // the record of holds shows whether both processes had the lock at once
		if other.err != nil {
			s.Fatalf("the waiter: %v", other.err)
		}
	case <-time.After(time.Until(struck.Add(s.Lease))):
		select {
		case <-h.Context().Done(): // the loss was due earlier, but may be late on a busy machine
		case <-time.After(s.slack()):
			s.Errorf("the holder does not know of its loss after a lease of %v", s.Lease)
		}
	}
	if err := h.lost(); err != nil {
		s.Errorf("after the loss %v, want ErrLost", err)
	}
}

// staysLost checks that the loss of a grant is final. Then it releases the grant.
func (s *scene) staysLost(h *hold) {
	s.Helper()
	s.stillLost(h)
	s.within(s.lease()/3, "Release of a lost grant", func() {
		if err := h.Release(); !errors.Is(err, second.ErrLost) {
			s.Errorf("Release of a lost grant: %v, want ErrLost", err)
		}
	})
	if err := h.Grant.Release(); !errors.Is(err, second.ErrReleased) {
		s.Errorf("second Release: %v, want ErrReleased", err)
	}
}

func (s *scene) stillLost(h *hold) {
	s.Helper()
	for range 25 {
		time.Sleep(s.moment() / 2)
		if err := h.lost(); err != nil {
			s.Fatalf("a lost grant has come back: %v", err)
		}
	}
}

func stopped(s *scene) {
	a, b := s.victim(), s.process()
	s.needs(a.Blind != nil && a.Cut != nil, "stop a process")
	h := a.acquire()
	r := b.queue()
	a.Blind(h.Grant)
	heal := s.cut(a)
	time.Sleep(s.Lease)
	if err := h.ErrAt(a.Now()); !errors.Is(err, second.ErrLost) {
		s.Errorf("at the first look, by the clock, %v; want ErrLost", err)
	}
	if err := h.lost(); err != nil {
		s.Errorf("at the first look, after a lease, %v; want ErrLost", err)
	}
	next := r.granted()
	heal()
	s.staysLost(h)
	s.release(next)
	s.none()
}

// The store continues while the holder's machine sleeps. No timer of the holder fires, because timers stand still during a sleep.
func slept(s *scene) {
	a, b := s.victim(), s.process()
	s.needs(a.Sleep != nil, "put a machine to sleep")
	h, r := a.acquire(), b.queue()
	a.Blind(h.Grant)
	a.Sleep(h.Grant, s.Lease)
	if end := h.ValidUntil(); !end.IsZero() {
		s.Errorf("after a sleep for a lease the grant is valid until %v", end)
	}
	if err := h.ErrAt(a.Now()); !errors.Is(err, second.ErrLost) {
		s.Errorf("after a sleep for a lease, by the clock, %v; want ErrLost", err)
	}
	if err := h.lost(); err != nil {
		s.Errorf("after a sleep for a lease %v; want ErrLost", err)
	}
	s.staysLost(h)
	s.release(r.granted())
	s.none()
}

func removed(s *scene) {
	s.needs(s.Remove != nil, "remove a contender")
	a, b := s.process(), s.process()
	h := a.acquire()
	r := b.queue()
	h.leave() // recorded first, because the next process may get the lock before the holder learns of its loss
	s.Remove(s.path, 0)
	next := r.granted()
	s.awaitRemoval(h)
	waiting := a.queue()
	s.Remove(s.path, 1)
	s.settled()
	s.release(next)
	s.release(waiting.granted()) // by then, this process has queued again
	s.none()
}

// noLoss ends grants in each possible way, after their watches and watchdogs have started. None of them may report a loss. The end of the
// test checks for late reports.
func noLoss(s *scene) {
	a, b := s.process(), s.process()
	h := a.acquire()
	time.Sleep(s.Lease / 4)
	waiting := b.queue()
	s.keep(h)
	h = waiting.granted()
	s.listen(h)
	next := a.queue()
	gone := s.awaitRelease(h)
	again := b.requeue(s.Context(), h)
	gone.succeeded("AwaitRelease")
	h = next.granted()
	s.listen(h)
	s.keep(h)
	s.keep(again.granted())

	h = a.as(second.Writing).acquire()
	s.listen(h)
	reader := s.shared(h, b)
	s.listen(reader)
	s.keep(h)
	s.keep(reader)
	h = a.as(second.Writing).acquire()
	sharing := h.share(s.Context())
	s.wait(sharing)
	s.keep(h)
	s.sharingEnds(sharing, second.ErrReleased)
	time.Sleep(s.Lease / 3)
	s.none()
}

// The method listen makes a holder listen to all its signals.
func (s *scene) listen(h *hold) {
	h.Contended().C()
	h.RevokeRequested()
	s.settled()
}

// The method keep releases a grant, and checks that the grant is lost neither before nor during the release.
func (s *scene) keep(h *hold) {
	s.Helper()
	s.release(h)
	if h.Context().Err() != nil {
		s.Errorf("a release without a loss has ended the context: %v", context.Cause(h.Context()))
	}
}

func foundByRelease(s *scene) {
	s.needs(s.Remove != nil, "remove a contender")
	p := s.process()
	h := p.acquire()
	s.Remove(s.path, 0)
	if err := h.Release(); !errors.Is(err, second.ErrLost) {
		s.Errorf("Release of what was removed: %v, want ErrLost", err)
	}
	s.none()
}

func foundByRequeue(s *scene) {
	s.needs(s.Remove != nil, "remove a contender")
	p := s.process()
	h := p.acquire()
	s.Remove(s.path, 0)
	next, err := p.claim.Requeue(s.Context(), h.Grant)
	if err != nil {
		s.Fatalf("Requeue of what was removed: %v", err)
	}
	if err := h.AwaitRelease(); !errors.Is(err, second.ErrLost) {
		s.Errorf("the release of what was removed before a requeue: %v, want ErrLost", err)
	}
	if err := next.Release(); err != nil {
		s.Errorf("Release: %v", err)
	}
	s.none()
}

// awaitRemoval waits until a holder learns that its contender was removed. Then it releases the grant.
func (s *scene) awaitRemoval(h *hold) {
	s.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(s.news() + s.slack()):
		s.Errorf("the holder has not heard within %v that its contender was removed", s.news())
	}
	s.staysLost(h)
}

var tokenPromises = []promise{
	{name: "tokens", text: "Tokens are positive, and each grant has a higher token than the grant before it", test: tokensGrow},
	{name: "tokens-kill", text: "After a holder is killed, the next grant still has a higher token", test: tokensGrowOverKill},
	{name: "tokens-failover", text: "After another server takes over, the next grant still has a higher token",
		alone: true, first: true, test: tokensGrowOverFailover},
	{name: "tokens-restart", text: "After the store is restarted, the next grant still has a higher token",
		alone: true, first: true, test: tokensGrowOverRestart},
}

func tokensGrow(s *scene) {
	p := s.processes(2)
	for turn := range 8 {
		a, b := p[turn%2], p[(turn+1)%2]
		h := a.acquire()
		waiting := b.queue()
		again := a.requeue(s.Context(), h)
		s.release(waiting.granted())
		s.release(again.granted())
		s.none()
		s.release(b.takes())
		s.none()
	}
}

func tokensGrowOverKill(s *scene) {
	a, b := s.victim(), s.process()
	s.needs(a.Kill != nil, "kill a process")
	h := a.acquire()
	r := b.queue()
	h.leave()
	killed := time.Now()
	a.Kill()
	next := r.granted()
	if d := time.Since(killed); d > 2*s.Lease+s.slack() {
		s.Errorf("the next one waited for %v, want at most %v", d, 2*s.Lease)
	}
	s.release(next)
	s.release(s.process().acquire())
	s.none()
}

func tokensGrowOverFailover(s *scene) {
	if s.Failover == nil {
		s.lacks("the test setup has no second server")
	}
	s.tokensGrowOver(s.Failover)
}

func tokensGrowOverRestart(s *scene) {
	s.needs(s.Restart != nil, "restart the store")
	s.tokensGrowOver(s.Restart)
}

// tokensGrowOver checks that tokens grow in spite of a fault. There are a holder, which may lose the lock, a waiter, and later contenders.
func (s *scene) tokensGrowOver(strike func()) {
	a, b := s.victim(), s.victim()
	h := a.acquire()
	r := b.queue()
	strike()
	letGo := func(h *hold) {
		s.Helper()
		if err := h.Release(); err != nil && !errors.Is(err, second.ErrLost) {
			s.Errorf("Release: %v, want nil or ErrLost", err)
		}
	}
	letGo(h)
	next := r.granted()
	again := a.begin(a.claim.Acquire)
	letGo(next)
	letGo(again.granted())
	letGo(s.victim().acquire())
	s.none()
}
