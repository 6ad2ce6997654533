package zklock

import (
	"net"
	"time"
)

// holdBack waits until the library has set its watches again. It does so unasked as
// soon as it is connected (642). A reply that is still held when the connection breaks
// is not delivered.
func (s *socket) holdBack() error {
	s.mu.Lock()
	rewatch := s.rewatch
	s.mu.Unlock()
	if rewatch == nil {
		return nil
	}
	bound := time.NewTimer(s.session.negotiated() / 3)
	defer bound.Stop()
	select {
	case <-rewatch:
	case <-s.dead:
		return net.ErrClosed
	case <-bound.C: // never seen; better a race than a stuck connection
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watching.due = 0
		s.openLocked()
	}
	return nil
}

// openLocked ends the holding back.
func (s *socket) openLocked() {
	if s.rewatch != nil {
		close(s.rewatch)
		s.rewatch = nil
	}
}
