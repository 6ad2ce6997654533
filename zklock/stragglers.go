package zklock

import (
	"context"
	"sync"
)

// stragglers are the attempts whose callers have left. The next attempt on the same
// path waits for them, so that callers who come and go while a call is stuck do not
// pile up stuck calls.
type stragglers struct {
	mu   sync.Mutex // guards the field below
	last map[string]*attempt
}

func (s *stragglers) add(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-a.done:
	default:
		s.last[a.lock.path] = a
	}
}

func (s *stragglers) remove(a *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[a.lock.path] == a {
		delete(s.last, a.lock.path)
	}
}

func (s *stragglers) await(ctx context.Context, path string) error {
	s.mu.Lock()
	a := s.last[path]
	s.mu.Unlock()
	if a == nil {
		return nil
	}
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
