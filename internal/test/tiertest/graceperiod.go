package tiertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var gracePeriodPromises = []promise{
	{name: "grace-period", text: "A server that starts or takes over, and may have lost locks, grants no lock for one lease; errors, " +
		"waits and Contenders report this grace period", alone: true, first: true, test: gracePeriod},
}

// successor returns a function that makes another server take over. If the harness cannot do that, the function restarts the same server.
func (s *scene) successor() func() {
	if s.Failover != nil {
		return s.Failover
	}
	return s.Restart
}

// gracePeriod makes another server take over. It does so again if the grace period ends before all checks were made.
func gracePeriod(s *scene) {
	if !s.Forgets {
		s.lacks("the store never loses a lock that it granted")
	}
	s.needs(s.successor() != nil, "start a server")
	p, looker := s.victim(), s.victim()
	s.used(p)
	for range 3 {
		if unseen := s.inGracePeriod(p, looker); unseen == "" {
			return
		} else {
			s.Logf("not seen in time: %s", unseen)
		}
	}
	s.Fatalf("the process has not reported the grace period")
}

// inGracePeriod makes another server take over, and checks what a process reports during the grace period. The new server may already serve
// while other servers do not. The result unseen names the part of the grace period that the process did not see.
func (s *scene) inGracePeriod(p, looker *proc) (unseen string) {
	struck := time.Now()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.successor()()
	}()
	defer func() { <-over }()
	if !s.poll(s.patience(), func() bool { return p.GracePeriod() != nil }) {
		return "by the tier"
	}
	var q *second.GracePeriodError
	r := p.begin(p.claim.TryAcquire)
	// The try is repeated while the server cannot be reached.
	for r.end(); r.err != nil && !errors.Is(r.err, second.ErrLocked) && p.GracePeriod() != nil; r.end() {
		r = p.begin(p.claim.TryAcquire)
	}
	if r.err == nil {
		s.granted(r.hold, struck)
	}
	if !errors.As(r.err, &q) || !errors.Is(r.err, second.ErrLocked) {
		return fmt.Sprintf("by a try: %v", r.err)
	}
	w := new(second.Wait)
	r = p.begin(func(ctx context.Context) (second.Grant, error) { return p.claim.Claim.Acquire(ctx, w) })
	sees := func(what string, is func() bool) {
		for unseen == "" && !is() {
			if r.ended() {
				unseen = what
			}
			time.Sleep(s.moment() / 2)
		}
	}
	sees("by a wait", func() bool { return w.Standing().GracePeriod != nil })
	sees("in the queue", func() bool {
		queue := looker.look()
		return len(queue) == 1 && queue[0].InGracePeriod
	})
	h := r.granted()
	s.await("the grace period is over", s.patience(), func() bool {
		queue := looker.look()
		return p.GracePeriod() == nil && looker.GracePeriod() == nil && len(queue) == 1 && !queue[0].InGracePeriod
	})
	s.await("a try after the grace period finds the lock taken", s.patience(), func() bool { // a try may also fail because its answer is late
		r = looker.begin(looker.claim.TryAcquire)
		r.end()
		return errors.Is(r.err, second.ErrLocked)
	})
	if errors.As(r.err, &q) {
		s.Errorf("a try after the grace period: %v, want ErrLocked", r.err)
	}
	s.granted(h, struck)
	s.none()
	return unseen
}

// The method granted checks that a grant did not come earlier than a lease after the fail-over. Then it releases the grant.
func (s *scene) granted(h *hold, struck time.Time) {
	s.Helper()
	if d := time.Since(struck); d < s.Lease {
		s.Errorf("granted %v after another server took over, want a lease of %v at least", d, s.Lease)
	}
	s.release(h)
}
