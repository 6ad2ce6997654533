package tiertest

import (
	"context"
	"errors"
	"slices"

	"github.com/tierlock/tierlock/internal/second"
)

var breakPromises = []promise{
	{name: "break", text: "Break removes only the contender with the given token: a holder learns of its loss, a waiter queues again; an " +
		"unknown token removes nothing", test: broken},
	{name: "break-readers", text: "Break can remove one of several readers by its token; the other readers keep the lock", test: readerBroken},
	{name: "break-shared", text: "Break can remove a writer that has downgraded to a reader, by the token that the queue shows",
		test: sharedIsBroken},
	{name: "break-lost", text: "Break removes the contender even if any message to the process that calls Break is lost",
		test: brokenOverLostMessages},
	{name: "break-ends", text: "If the context of Break ends at any step, the error says whether the contender may have been removed",
		test: breakEnds},
	{name: "break-release", text: "If the holder releases the lock during a Break, the lock is either released or lost, and Break reports " +
		"which",
		test: brokenDuringRelease},
	{name: "break-permits", text: "Break removes only the permits that were granted with the given token; a waiter that Break removes " +
		"queues again",
		test: permitsBroken},
	{name: "break-permits-lost", text: "Break removes permits even if any message to the process that calls Break is lost",
		test: permitsBrokenOverLostMessages},
}

// scene.breaks calls Break with a token, for a lock or for permits. Break has to return one of the errors in want.
func (s *scene) breaks(by interface {
	Break(ctx context.Context, token int64) error
}, token int64, want ...error,
) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), s.patience())
	defer cancel()
	err := by.Break(ctx, token)
	if errors.Is(err, errors.ErrUnsupported) {
		s.lacks("Break does not work on advisory locks")
	}
	if !slices.ContainsFunc(want, func(want error) bool { return errors.Is(err, want) }) {
		s.Fatalf("Break: %v, want %v", err, want)
	}
}

func (p *proc) breaks(token int64, want ...error) {
	p.scene.Helper()
	p.scene.breaks(p.claim, token, want...)
}

func (t *taker) breaks(token int64, want ...error) {
	t.scene.Helper()
	t.scene.breaks(t.store, token, want...)
}

// awaitBroken checks that a holder learns of a Break in the same way as of an operator who removes its contender.
func (s *scene) awaitBroken(h *hold) {
	s.Helper()
	s.awaitRemoval(h)
	if loss := context.Cause(h.Context()); second.CauseOf(loss) != second.ByDeletion {
		s.Errorf("the cause of the loss is %q, want %q: %v", second.CauseOf(loss), second.ByDeletion, loss)
	}
}

func broken(s *scene) {
	a, b, breaker := s.process(), s.process(), s.process()
	breaker.breaks(7, second.ErrReleased) // the path was never used, so no contender has this token
	for _, mode := range modes {
		h := a.as(mode).acquire()
		waiting := b.as(second.Exclusive).queue()
		breaker.breaks(h.Token()+1<<40, second.ErrReleased)
		breaker.breaks(0, second.ErrReleased)
		s.wait(waiting)
		if err := h.Err(); err != nil {
			s.Errorf("the holder after a break of a token that no contender has: %v", err)
		}
		h.leave() // recorded first, because the next process may get the lock before the holder learns of its loss
		breaker.breaks(h.Token(), nil)
		next := waiting.granted()
		s.awaitBroken(h)
		breaker.breaks(h.Token(), second.ErrReleased)

		again, last := a.as(mode).queue(), breaker.as(second.Exclusive).queue()
		breaker.breaks(breaker.sees(3)[1].Token, nil)
		s.wait(again, last)
		s.release(next)
		s.release(last.granted()) // last gets the lock before again, which has queued anew
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
		s.release(next) // checks that Break did not break this hold
		s.none()
	})
}

func sharedIsBroken(s *scene) {
	a, b, breaker := s.process().as(second.Writing), s.process().as(second.Reading), s.process()
	h := a.acquire()
	reader := b.queue()
	h.share(s.Context()).succeeded("Share")
	other := reader.granted()
	token := breaker.sees(2)[0].Token
	waiting := breaker.as(second.Writing).queue()
	breaker.breaks(token, nil)
	s.awaitBroken(h)
	s.wait(waiting)
	s.release(other)
	s.release(waiting.granted())
	s.none()
}

func breakEnds(s *scene) {
	a, breaker := s.process(), s.process()
	breaker.breaks(7, second.ErrReleased)
	for _, m := range []mishap{cancelled, both} {
		s.each(breaker, m, func(ctx context.Context) {
			h := a.acquire()
			err := breaker.claim.Break(ctx, h.Token())
			s.settled()
			switch {
			case errors.Is(err, second.ErrUnknown):
				breaker.breaks(h.Token(), nil, second.ErrReleased)
				err = nil
			case err != nil:
				s.release(h) // in this case, Break has removed nothing
			}
			if err == nil {
				s.releasesLost(h)
			}
			s.none()
		})
	}
}

// releasesLost checks that the release of a broken hold returns its loss.
func (s *scene) releasesLost(h *hold) {
	s.Helper()
	if err := h.Release(); !errors.Is(err, second.ErrLost) {
		s.Errorf("Release of a lock that was broken: %v, want ErrLost", err)
	}
}

func brokenDuringRelease(s *scene) {
	a, breaker := s.process(), s.process()
	breaker.breaks(7, second.ErrReleased)
	for range 20 {
		h := a.acquire()
		release := s.call(s.Context(), func(context.Context) error { return h.Release() })
		broken := breaker.claim.Break(s.Context(), h.Token())
		release.end()
		switch lost := errors.Is(release.err, second.ErrLost); {
		case !lost && release.err != nil, broken != nil && !errors.Is(broken, second.ErrReleased), lost != (broken == nil):
			s.Errorf("Release: %v, and Break: %v", release.err, broken)
		}
		s.none()
	}
}

func permitsBroken(s *scene) {
	t := s.takers(4, 4)
	breaker := t[3]
	breaker.breaks(7, second.ErrReleased) // the path was never used, so no contender has this token
	a, b, c := t[0].take(2), t[0].take(1), t[1].take(1)
	waiting := t[2].queue(2)
	tokens := breaker.sees(2, 1, 1, 0)
	breaker.breaks(tokens[3].Token+1<<40, second.ErrReleased)
	breaker.breaks(0, second.ErrReleased)
	s.wait(waiting)
	broken := a.part(2) // recorded first, because other processes may get the permits before the holder learns of its loss
	breaker.breaks(tokens[0].Token, nil)
	p := waiting.granted()
	s.awaitPermitsBroken(a, broken)
	breaker.breaks(tokens[0].Token, second.ErrReleased)
	for _, other := range []*portion{b, c} {
		if err := other.err(); err != nil {
			s.Errorf("permits after a break of others: %v", err)
		}
	}

	again, last := t[1].queue(1), t[0].queue(1)
	breaker.breaks(breaker.sees(1, 1, 2, 0, 0)[3].Token, nil)
	s.wait(again, last)
	s.giveAll(b)
	q := last.granted() // last gets the permits before again, which has queued anew
	s.wait(again)
	s.giveAll(c)
	r := again.granted()

	s.give(p, 1)
	rest := p.part(1)
	breaker.breaks(breaker.sees(1, 1, 1)[0].Token, nil)
	s.awaitPermitsBroken(p, rest)
	s.giveAll(q, r)
	s.none()
}

// awaitPermitsBroken checks that a holder learns that its permits were broken. Then it releases them.
func (s *scene) awaitPermitsBroken(p *portion, broken []second.Permit) {
	s.Helper()
	for _, one := range broken {
		s.await("the holder hears that its permits were broken", s.news(), func() bool { return one.Context().Err() != nil })
		if err := one.ErrAt(p.taker.Now()); !errors.Is(err, second.ErrLost) || second.CauseOf(err) != second.ByDeletion {
			s.Errorf("a permit that was broken: %v", err)
		}
	}
	if err := p.taker.store.Release(broken); !errors.Is(err, second.ErrLost) {
		s.Errorf("Release of permits that were broken: %v, want ErrLost", err)
	}
}

func permitsBrokenOverLostMessages(s *scene) {
	holder, other, breaker := s.process().of(3), s.process().of(3), s.process().of(3)
	s.each(breaker.proc, lost, func(context.Context) {
		held := holder.take(2)
		waiting := other.queue(3)
		token := holder.sees(2, 0)[0].Token
		broken := held.part(2)
		breaker.breaks(token, nil)
		next := waiting.granted()
		s.settled()
		s.giveAll(next) // checks that Break did not break these permits
		if err := holder.store.Release(broken); !errors.Is(err, second.ErrLost) {
			s.Errorf("Release of permits that were broken: %v, want ErrLost", err)
		}
		s.none()
	})
}
