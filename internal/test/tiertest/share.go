package tiertest

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var sharePromises = []promise{
	{name: "share", text: "A downgrade waits until the next process in the queue is a reader: that reader then gets the lock, and a " +
		"writer does not", test: shares},
	{name: "share-writes", text: "A downgrade from writer to reader takes one write", alone: true, test: shareIsOneWrite},
	{name: "share-contended", text: "After a downgrade, the holder gets a signal if a writer waits, and no signal if only readers wait",
		test: contendedAnew},
	{name: "share-ends", text: "If the context of a downgrade ends, the holder stays a writer; if the lock is lost, the downgrade ends " +
		"and leaves no unused entry", test: shareEnds},
	{name: "share-troubled", text: "If the context of a downgrade ends, or a message is lost, at any step, the lock is either shared or " +
		"still exclusive",
		test: shareTroubled},
	{name: "share-removal", text: "If an operator removes a holder that has downgraded, the former holder soon learns of its loss",
		test: sharedIsRemoved},
}

// The method share starts to share a grant. From then on, other readers may have the lock, too, unless Share fails.
func (h *hold) share(ctx context.Context) *request {
	h.opened(true)
	return h.scene.begin(ctx, func(ctx context.Context) (second.Grant, error) {
		err := h.Share(ctx)
		h.opened(err == nil)
		return nil, orNothing(err)
	})
}

func (h *hold) opened(open bool) {
	h.scene.mu.Lock()
	defer h.scene.mu.Unlock()
	h.open = open
}

// The method shared makes p wait as a reader behind the writer h. Then it shares the writer's grant, so that p gets the lock, too.
func (s *scene) shared(h *hold, p *proc) (reader *hold) {
	s.Helper()
	r := p.as(second.Reading).queue()
	s.within(s.news(), "Share", func() { h.share(s.Context()).succeeded("Share") })
	return r.granted()
}

func shares(s *scene) {
	p := s.processes(4)
	for _, mode := range alone {
		h := p[0].as(second.Writing).acquire()
		token := h.Token()
		sharing := h.share(s.Context())
		s.wait(sharing) // Share waits until there is a reader
		leaver := p[1].as(mode).queue()
		reader := p[2].as(second.Reading).queue()
		next := p[3].as(mode).queue()
		last := p[1].as(second.Reading).queue()
		s.wait(sharing, reader, next, last)
		if h.Shared() {
			s.Errorf("shared although the one right behind does not read")
		}
		leaver.cancel()
		leaver.end()
		s.within(s.news(), "Share with a reader right behind", func() { sharing.succeeded("Share") })
		reading := reader.granted()
		s.wait(next, last)
		if err := h.Err(); err != nil || h.Context().Err() != nil || !h.Shared() || h.Token() != token {
			s.Errorf("once it is shared: Err %v, shared %t, token %d, want that of the writer, %d", err, h.Shared(), h.Token(), token)
		}
		h.share(s.Context()).succeeded("Share again")
		s.release(h)
		s.wait(next, last)
		s.release(reading)
		h = next.granted()
		s.wait(last)
		s.release(h)
		s.release(last.granted())
		s.none()
	}
}

func shareIsOneWrite(s *scene) {
	a, b := s.process(), s.process()
	h := a.as(second.Writing).acquire()
	sharing := h.share(s.Context())
	s.settled()
	var reader *hold
	s.costs("a reader that queues and is let in", 2, 2, func() {
		reader = b.as(second.Reading).queue().granted()
		sharing.succeeded("Share")
	})
	s.release(reader)
	s.release(a.as(second.Writing).requeue(s.Context(), h).granted())
	s.none()
}

func contendedAnew(s *scene) {
	a, b, c := s.process(), s.process(), s.process()
	for _, mode := range alone {
		h := a.as(second.Writing).acquire()
		h.Contended().C()
		reader := s.shared(h, b)
		h.Contended().C()
		time.Sleep(s.Lease / 3)
		if h.Contended().Raised() {
			s.Errorf("contended by readers")
		}
		next := c.as(mode).queue()
		s.awaitContended(h)
		s.awaitContended(reader)
		s.release(h)
		s.release(reader)
		s.release(next.granted())
		s.none()
	}
}

func shareEnds(s *scene) {
	a, b := s.process(), s.process()
	writer := a.as(second.Writing)

	h := writer.acquire()
	sharing := h.share(s.Context())
	s.wait(sharing)
	s.within(0, "a cancelled Share", func() {
		sharing.cancel()
		if sharing.end(); !errors.Is(sharing.err, context.Canceled) {
			s.Errorf("a cancelled Share: %v", sharing.err)
		}
	})
	reader := b.as(second.Reading).queue()
	s.wait(reader)
	if err := h.Err(); err != nil || h.Shared() {
		s.Errorf("after a Share that was cancelled: Err %v, shared %t, want a grant to write", err, h.Shared())
	}
	s.release(h)
	s.release(reader.granted())
	s.none()

	h = writer.acquire()
	sharing = h.share(s.Context())
	s.wait(sharing)
	s.release(h)
	s.sharingEnds(sharing, second.ErrReleased)
	s.none()

	h = writer.acquire()
	sharing = h.share(s.Context())
	s.wait(sharing)
	again := writer.requeue(s.Context(), h)
	s.sharingEnds(sharing, second.ErrReleased)
	h = again.granted()

	sharing = h.share(s.Context())
	s.wait(sharing)
	h.leave()
	if err := a.Close(); err != nil {
		s.Errorf("Close: %v", err)
	}
	s.sharingEnds(sharing, nil)
	s.none()
}

// sharingEnds checks that a Share fails, now or soon.
func (s *scene) sharingEnds(r *request, want error) {
	s.Helper()
	s.within(s.news(), "Share of a released lock", r.end)
	if errors.Is(r.err, errNothing) || want != nil && !errors.Is(r.err, want) {
		s.Errorf("Share of what is given up: %v, want %v", r.err, want)
	}
}

// shareTroubled checks a Share during which a fault happens. Readers that got the lock release it last.
func shareTroubled(s *scene) {
	a, b := s.process(), s.process()
	for _, m := range []mishap{lost, cancelled, both} {
		s.each(a, m, func(ctx context.Context) {
			h := a.as(second.Writing).acquire()
			reader := b.as(second.Reading).queue()
			sharing := h.share(ctx)
			sharing.end()
			if err := h.Err(); err != nil {
				s.Errorf("the grant is lost: %v", err)
			}
			if shared := errors.Is(sharing.err, errNothing); shared != h.Shared() {
				s.Errorf("Share: %v, but it is shared: %t", sharing.err, h.Shared())
			} else if shared {
				reader.granted()
			} else {
				s.wait(reader)
			}
			s.release(h)
			s.release(reader.granted())
			s.none()
		})
	}
}

func sharedIsRemoved(s *scene) {
	s.needs(s.Remove != nil, "remove a contender")
	a, b := s.process(), s.process()
	h := a.as(second.Writing).acquire()
	reader := s.shared(h, b)
	s.Remove(s.path, 0)
	s.awaitRemoval(h)
	if err := reader.Err(); err != nil {
		s.Errorf("another reader: %v", err)
	}
	s.release(reader)
	s.none()
}
