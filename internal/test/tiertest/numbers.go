package tiertest

import (
	"context"
	"errors"

	"github.com/tierlock/tierlock/internal/second"
)

func anotherNumber(s *scene) {
	a, b := s.process(), s.process()
	two, three := a.of(2), b.of(3)
	held := two.take(1)
	three.has(3)
	present := s.present()
	three.never(3)
	three.has(2)
	s.leftWithin(present, s.expiry())
	other := b.of(3)
	p := other.takes(1)
	other.has(2)
	three.refused(1)
	waiting := three.queue(2)
	s.giveAll(p)
	s.wait(waiting)
	s.giveAll(held)
	s.giveAll(waiting.granted())
	s.none()
}

// taker.has checks how many permits the semaphore has, according to the process.
func (t *taker) has(permits int) {
	t.scene.Helper()
	if got := t.store.Permits(); got != permits {
		t.scene.Errorf("there are %d permits, want %d", got, permits)
	}
}

// taker.never checks that no request for k permits is served: the semaphore has fewer.
func (t *taker) never(k int) {
	t.scene.Helper()
	for _, take := range []func(context.Context, int) *taking{t.acquire, t.try} {
		take(t.scene.Context(), k).tooMany()
	}
}

// tooMany checks that a call fails because it asks for more permits than there are.
func (r *taking) tooMany() {
	r.scene.Helper()
	if r.end(); !errors.Is(r.err, second.ErrTooManyPermits) {
		r.scene.Errorf("%d permits, which is more than there are: %v, want ErrTooManyPermits", r.want, r.err)
	}
}

// The method sets calls SetPermits with n.
func (t *taker) sets(n int) {
	t.scene.Helper()
	if n > t.scene.permitsNow() {
		t.scene.permits(n) // waiters may get permits even before SetPermits returns
	}
	if err := t.store.SetPermits(t.scene.Context(), n); err != nil {
		t.scene.Fatalf("SetPermits: %v", err)
	}
	t.scene.permits(n)
}

func fewerPermits(s *scene) {
	t := s.takers(3, 5)
	p, q := t[0].take(3), t[1].take(2)
	waiting, large := t[2].queue(2), t[0].queue(4)
	t[1].sets(2)
	s.giveAll(q)
	s.give(p, 1)
	s.wait(waiting)
	if err := p.err(); err != nil {
		s.Errorf("permits that were taken before there were fewer: %v", err)
	}
	t[1].refused(1)
	s.giveAll(p)
	s.giveAll(waiting.granted())
	large.tooMany() // this call fails when it becomes first in the queue, or earlier
	t[1].never(3)
	s.giveAll(t[1].takes(2))
	s.none()
}

func morePermits(s *scene) {
	t := s.takers(4, 2)
	p := t[0].take(2)
	a, b := t[1].queue(1), t[2].queue(2)
	t[3].sets(5)
	q, r := a.granted(), b.granted()
	t[3].refused(1)
	s.giveAll(p)
	late := s.process().of(2)
	last := late.takes(1)
	late.has(5)
	s.giveAll(last, q, r)
	s.none()
}

func numberStays(s *scene) {
	a, b := s.process().of(3), s.process().of(2)
	s.usedPermits(a)
	a.sets(1)
	s.giveAll(b.takes(1))
	b.has(1)
	b.never(2)
	a.sets(4)
	s.giveAll(b.take(2))
	b.has(4)
	s.none()
}

func anotherNumberLater(s *scene) {
	a, b := s.process(), s.process()
	s.giveAll(a.of(2).take(2))
	s.none()
	s.permits(3)
	p := b.of(3).take(3)
	again := a.of(2)
	again.refused(1)
	again.has(3)
	s.giveAll(p)
	s.none()
}
