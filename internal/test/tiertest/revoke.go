package tiertest

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var revokePromises = []promise{
	{name: "revoke", text: "A reader, a writer or a mutex learns that another process has called Revoke; the call alone does not take the " +
		"lock away",
		test: revoked},
	{name: "revoke-readers", text: "All readers learn that another process has called Revoke, also a writer that has downgraded; waiters " +
		"do not learn of it",
		test: readersRevoked},
	{name: "revoke-messages", text: "A writer learns of a call of Revoke, whichever message is in flight during the call, also during a " +
		"downgrade",
		test: revokedAtEachMessage},
	{name: "revoke-free", text: "Revoke of a free lock returns no error", test: freeLockRevoked},
}

// The method revoke asks the holders for the lock.
func (p *proc) revoke() {
	p.scene.Helper()
	ctx, cancel := context.WithTimeout(p.scene.Context(), p.scene.patience())
	defer cancel()
	if err := p.claim.Revoke(ctx); err != nil {
		p.scene.Fatalf("Revoke: %v", err)
	}
}

// awaitRevoked checks that a holder learns that another process has asked for the lock, and that it still has the lock.
func (s *scene) awaitRevoked(h *hold) {
	s.Helper()
	select {
	case <-h.RevokeRequested():
	case <-time.After(s.news() + s.slack()):
		s.Fatalf("the holder has not heard within %v that it was asked for the lock", s.news())
	}
	if err := h.Err(); err != nil || h.Context().Err() != nil {
		s.Errorf("the holder that was asked: %v", err)
	}
}

func (s *scene) notRevoked(h *hold) {
	s.Helper()
	select {
	case <-h.RevokeRequested():
		s.Errorf("revoked, although no process has asked for the lock")
	default:
	}
}

func revoked(s *scene) {
	a, b, asker := s.process(), s.process(), s.process()
	for _, mode := range modes {
		for _, late := range []bool{false, true} {
			h := a.as(mode).acquire()
			if !late {
				h.RevokeRequested()
				s.settled() // by then, the request that looks for a revocation may have been answered
				s.notRevoked(h)
			}
			waiting := b.queue()
			asker.revoke()
			s.awaitRevoked(h)
			s.wait(waiting)
			again := a.as(mode).requeue(s.Context(), h)
			next := waiting.granted()
			s.notRevoked(next)
			s.release(next)
			h = again.granted()
			s.settled()
			s.notRevoked(h) // a later grant, for which no process has asked
			s.release(h)
			s.none()
		}
	}
}

func readersRevoked(s *scene) {
	p := s.processes(4)
	h := p[0].as(second.Writing).acquire()
	readers := []*hold{h, s.shared(h, p[1]), p[2].as(second.Reading).acquire()}
	waiting := []*request{p[3].as(second.Writing).queue(), p[1].as(second.Reading).queue()}
	p[3].revoke()
	for _, h := range readers {
		s.awaitRevoked(h)
	}
	queue, err := p[3].claim.Contenders(s.Context())
	if err != nil || len(queue) != 5 {
		s.Fatalf("Contenders: %v, %v", queue, err)
	}
	for i, c := range queue {
		if c.Shared != (i != 3) || c.Asked != (i < 3) {
			s.Errorf("contender %d of three readers, a writer and a reader: %+v", i, c)
		}
	}
	for _, h := range readers {
		s.release(h)
	}
	for _, r := range waiting {
		h := r.granted()
		s.settled()
		s.notRevoked(h)
		s.release(h)
	}
	s.none()
}

func freeLockRevoked(s *scene) {
	p := s.process()
	p.revoke() // the path was never used
	s.used(p)
	p.revoke()
	h := p.acquire()
	s.settled()
	s.notRevoked(h)
	s.release(h)
	s.none()
}

// revokedAtEachMessage makes another process ask for the lock at each message to a writer. In the end, the writer shares its lock.
func revokedAtEachMessage(s *scene) {
	a, b, asker := s.process(), s.process(), s.process()
	s.used(b)
	asked := make(chan bool, 1)
	ask := func() {
		queues := s.Left(s.path) > 0
		if queues {
			asker.revoke()
		}
		asked <- queues
	}
	s.each(a, mishap{name: "somebody asks for the lock", do: ask}, func(context.Context) {
		select {
		case <-asked: // removes the answer to a request that came after the release of the previous run
		default:
		}
		h := a.as(second.Writing).acquire()
		h.RevokeRequested()
		reader := s.shared(h, b)
		select {
		case queued := <-asked:
			if queued {
				s.awaitRevoked(h)
			}
			s.release(h)
		case <-time.After(s.moment()): // any later message belongs to the release
			s.release(h)
		}
		s.release(reader)
		s.none()
	})
}
