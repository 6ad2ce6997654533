package second

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Contention is a signal that another process waits behind a grant. It is raised once, and stays raised. The tier starts to look for
// waiters only after a call of For or C.
type Contention struct {
	look   func()
	looked sync.Once
	raised chan struct{}
	since  time.Time // valid when raised is closed

	suspected atomic.Pointer[time.Time] // since when a process may wait that the store does not show
}

// NewContention returns a signal that is not raised. The first call of For or C calls look, unless the signal is raised by then. look
// starts the search for waiters. It must not block.
func NewContention(look func()) *Contention {
	return &Contention{look: look, raised: make(chan struct{})}
}

// Raise raises the signal, and records that another process has waited since the given time. Raise is called at most once.
func (s *Contention) Raise(since time.Time) {
	s.since = since
	close(s.raised)
}

// Suspect records that a process may wait which the store does not show, from the given time on. The method For then returns how long ago
// that time was. Suspect does not raise the signal.
func (s *Contention) Suspect(from time.Time) { s.suspected.Store(&from) }

// C returns a channel that is closed when the signal is raised. The first call starts the search for waiters.
func (s *Contention) C() <-chan struct{} {
	s.looked.Do(func() {
		if !s.Raised() {
			s.look()
		}
	})
	return s.raised
}

// Raised reports whether another process is known to wait. It does not start the search for waiters.
func (s *Contention) Raised() bool {
	select {
	case <-s.raised:
		return true
	default:
		return false
	}
}

// This method returns how long another process has waited, as far as is known. It counts from the request that showed the waiter, or from
// the grant if that was later. If no waiter is known, it counts from the time that Suspect was called with. Before that time, or without a
// call of Suspect, it returns 0.
func (s *Contention) For() time.Duration {
	if s.C(); s.Raised() {
		return max(time.Since(s.since), 1)
	}
	if from := s.suspected.Load(); from != nil && !time.Now().Before(*from) {
		return max(time.Since(*from), 1)
	}
	return 0
}
