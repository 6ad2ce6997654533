package tiertest

import (
	"context"

	"github.com/tierlock/tierlock/internal/second"
)

// queueAsking is like queue. It also returns the Wait with which a test can ask for the place of the contender.
func (p *proc) queueAsking() (*request, *second.Wait) {
	p.scene.Helper()
	w := new(second.Wait)
	want := p.scene.present() + 1
	r := p.begin(func(ctx context.Context) (second.Grant, error) { return p.claim.Claim.Acquire(ctx, w) })
	p.scene.awaitLeft(want)
	return r, w
}

// awaitStanding waits until a contender knows how many contenders are ahead, and which token the nearest of them has.
func (s *scene) awaitStanding(w *second.Wait, ahead int, token int64) {
	s.Helper()
	var got second.Standing
	if !s.poll(s.news(), func() bool {
		got = w.Standing()
		return got.Ahead == ahead && got.Nearest.Token == token
	}) {
		s.Fatalf("stands %+v, want %d ahead, the nearest with token %d", got, ahead, token)
	}
	if n := got.Nearest; n.ID == "" || n.PID == 0 || n.Host == "" || n.Since.IsZero() {
		s.Errorf("the nearest is %+v, want to know its process", n)
	}
}

func standing(s *scene) {
	p := s.processes(3)
	h := p[0].acquire()
	next, w1 := p[1].queueAsking()
	last, w2 := p[2].queueAsking()
	s.awaitStanding(w1, 1, h.Token())
	s.awaitStanding(w2, 2, p[1].sees(3)[1].Token)

	s.release(h)
	h = next.granted()
	s.awaitStanding(w2, 1, h.Token())
	if got := w1.Standing(); got.Ahead != 0 || !w1.Behind() {
		s.Errorf("who has the lock stands %+v, and has waited for others: %t", got, w1.Behind())
	}

	// A process that gives up and queues again learns its new place, even if its store watches the queue already.
	last.cancel()
	last.end()
	s.awaitLeft(1)
	if got := w2.Standing(); got.Ahead != 0 {
		s.Errorf("who has left stands %+v", got)
	}
	last, w2 = p[2].queueAsking()
	s.awaitStanding(w2, 1, h.Token())

	h.leave()
	w1 = new(second.Wait)
	again := s.begin(s.Context(), func(ctx context.Context) (second.Grant, error) { return p[1].claim.Claim.Requeue(ctx, h.Grant, w1) })
	h = last.granted()
	s.awaitStanding(w1, 1, h.Token())
	s.release(h)
	s.release(again.granted())

	free := new(second.Wait)
	r := p[0].begin(func(ctx context.Context) (second.Grant, error) { return p[0].claim.Claim.Acquire(ctx, free) })
	s.release(r.granted())
	if free.Behind() {
		s.Errorf("a contender that found an empty queue has waited for others")
	}
	s.none()
}
