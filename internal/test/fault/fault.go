// Package fault makes the ZooKeeper model apply a fault to the next frames of a kind. It is for tests.
package fault

import (
	"slices"
	"sync"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A Fault says what happens to frames of one kind.
type Fault struct {
	Op     string // kind of request; "" for any
	At     zktest.Direction
	About  func(f *zktest.Frame) bool // restricts the fault to some frames; nil for all of that kind
	Times  int                        // how many frames meet the fault; 0 for all until the fault is lifted
	Before func(f *zktest.Frame)      // called before a frame meets the fault; nil if nothing has to be called
	Do     zktest.Action
}

func (f *Fault) matches(frame *zktest.Frame) bool {
	return (f.Op == "" || f.Op == frame.Op) && f.At == frame.Dir && (f.About == nil || f.About(frame))
}

// Refusal returns an Action that answers a request with an error code. The client library has no error for that code.
func Refusal(code wire.Code) zktest.Action { return zktest.Error(code) }

// A Set contains the armed faults of one place. The zero Set contains none.
type Set struct {
	mu    sync.Mutex // guards the field below, and Armed.struck; About is called under it
	armed []*Armed
}

// An Armed is a fault that waits for its frames.
type Armed struct {
	Hit <-chan struct{} // closed when the first frame has met the fault

	fault  Fault
	set    *Set
	hit    chan struct{}
	struck int
}

// Arm adds a fault. If several match a frame, the oldest applies.
func (s *Set) Arm(f Fault) *Armed {
	hit := make(chan struct{})
	a := &Armed{Hit: hit, fault: f, set: s, hit: hit}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = append(s.armed, a)
	return a
}

// Clear disarms all faults.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = nil
}

// Meet returns the Action for a frame, and whether a fault applies to the frame.
func (s *Set) Meet(f *zktest.Frame) (zktest.Action, bool) {
	a, first := s.take(f)
	if a == nil {
		return zktest.Pass, false
	}
	if a.fault.Before != nil {
		a.fault.Before(f) // the mutex is not held, because Before may arm another fault
	}
	if first {
		close(a.hit)
	}
	return a.fault.Do, true
}

// Intercept is like [Set.Meet], in the form of a hook.
func (s *Set) Intercept(f *zktest.Frame) zktest.Action {
	action, _ := s.Meet(f)
	return action
}

// The method take returns the fault that applies to a frame, and whether the frame is the fault's first one.
func (s *Set) take(f *zktest.Frame) (a *Armed, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.armed, func(a *Armed) bool { return a.fault.matches(f) })
	if i < 0 {
		return nil, false
	}
	a = s.armed[i]
	if a.struck++; a.struck == a.fault.Times {
		s.armed = slices.Delete(s.armed, i, i+1)
	}
	return a, a.struck == 1
}

// Struck returns the number of frames to which the fault has been applied.
func (a *Armed) Struck() int {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	return a.struck
}

// Lift disarms the fault.
func (a *Armed) Lift() {
	a.set.mu.Lock()
	defer a.set.mu.Unlock()
	a.set.armed = slices.DeleteFunc(a.set.armed, func(other *Armed) bool { return other == a })
}
