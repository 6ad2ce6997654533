package second

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Contention is a signal that is raised once, and for good, when another process is known to wait behind a grant. The tier queries the
// store for waiters only after a call of For or Raised.
type Contention struct {
	look   func()
	looked sync.Once
	raised chan struct{}
	since  time.Time // valid when raised is closed

	suspected atomic.Pointer[time.Time] // from when on a process may wait that is not visible
}

// NewContention returns a signal. NewContention calls look, which must not block, when a caller first asks, unless the signal is raised
// by then; look starts the search for waiters.
func NewContention(look func()) *Contention {
	return &Contention{look: look, raised: make(chan struct{})}
}

// Raise records that another process has waited since the given time. Raise is called once.
func (s *Contention) Raise(since time.Time) {
	s.since = since
	close(s.raised)
}

// Suspect records that from a time on a process may be waiting that is not visible in the store. For counts from then; the signal is not
// raised.
func (s *Contention) Suspect(from time.Time) { s.suspected.Store(&from) }

// C returns a channel that is closed when the signal is raised.
func (s *Contention) C() <-chan struct{} {
	s.looked.Do(func() {
		if !s.Raised() {
			s.look()
		}
	})
	return s.raised
}

// Raised reports whether another process is known to wait, and starts nothing.
func (s *Contention) Raised() bool {
	select {
	case <-s.raised:
		return true
	default:
		return false
	}
}

// For returns for how long another process has been known to wait: since the look that showed it was sent, or since the grant if that
// came later. If no waiter is known, it returns the time since the suspicion, and 0 without one.
func (s *Contention) For() time.Duration {
	if s.C(); s.Raised() {
		return max(time.Since(s.since), 1)
	}
	if from := s.suspected.Load(); from != nil && !time.Now().Before(*from) {
		return max(time.Since(*from), 1)
	}
	return 0
}
