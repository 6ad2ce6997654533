package tiertest

import (
	"context"
	"errors"

	"github.com/tierlock/tierlock/internal/second"
)

var breakPromises = []promise{
	{name: "break", text: "Break removes exactly the contender with a token, a holder or one that waits, which then knows of its loss " +
		"or queues again; with a token that nobody has it removes nobody", test: broken},
	{name: "break-readers", text: "… also one reader of several", test: readerBroken},
	{name: "break-lost", text: "… also if any message to the process that breaks is lost", test: brokenOverLostMessages},
}

// breaks breaks the lock of who has the token.
func (p *proc) breaks(token int64, want error) {
	p.scene.Helper()
	ctx, cancel := context.WithTimeout(p.scene.Context(), p.scene.patience())
	defer cancel()
	err := p.claim.Break(ctx, token)
	if errors.Is(err, errors.ErrUnsupported) {
		p.scene.lacks("the store cannot break locks")
	}
	if !errors.Is(err, want) {
		p.scene.Fatalf("Break: %v, want %v", err, want)
	}
}

// awaitBroken checks that a holder knows that it was broken, as if an operator had removed it.
func (s *scene) awaitBroken(h *hold) {
	s.Helper()
	s.awaitRemoval(h)
	if loss := context.Cause(h.Context()); second.CauseOf(loss) != second.ByDeletion {
		s.Errorf("the cause of the loss is %q, want %q: %v", second.CauseOf(loss), second.ByDeletion, loss)
	}
}

func broken(s *scene) {
	a, b, breaker := s.process(), s.process(), s.process()
	breaker.breaks(7, second.ErrReleased) // never used
	for _, mode := range modes {
		h := a.as(mode).acquire()
		waiting := b.as(second.Exclusive).queue()
		breaker.breaks(h.Token()+1<<40, second.ErrReleased)
		breaker.breaks(0, second.ErrReleased)
		s.wait(waiting)
		if err := h.Err(); err != nil {
			s.Errorf("the holder after a break of a token that nobody has: %v", err)
		}
		h.leave() // the other one may have the lock before the holder hears of it
		breaker.breaks(h.Token(), nil)
		next := waiting.granted()
		s.awaitBroken(h)
		breaker.breaks(h.Token(), second.ErrReleased)

		again, last := a.as(mode).queue(), breaker.as(second.Exclusive).queue()
		breaker.breaks(breaker.sees(3)[1].Token, nil)
		s.wait(again, last)
		s.release(next)
		s.release(last.granted()) // before the other one, which has queued again
		s.release(again.granted())
		s.none()
	}
}

func readerBroken(s *scene) {
	p := s.processes(4)
	var readers []*hold
	for i := range 3 {
		readers = append(readers, p[i].as(second.Reading).acquire())
	}
	waiting := p[3].as(second.Writing).queue()
	p[3].breaks(readers[1].Token(), nil)
	s.awaitBroken(readers[1])
	s.wait(waiting)
	for _, i := range []int{0, 2} {
		if err := readers[i].Err(); err != nil {
			s.Errorf("reader %d of 3 after a break of reader 1: %v", i, err)
		}
		s.release(readers[i])
	}
	s.release(waiting.granted())
	s.none()
}

func brokenOverLostMessages(s *scene) {
	a, b, breaker := s.process(), s.process(), s.process()
	s.each(breaker, lost, func(context.Context) {
		h := a.acquire()
		waiting := b.queue()
		h.leave()
		breaker.breaks(h.Token(), nil)
		next := waiting.granted()
		s.awaitBroken(h)
		s.settled()
		s.release(next) // nobody has broken it instead
		s.none()
	})
}
