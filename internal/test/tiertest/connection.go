package tiertest

import (
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

var connectionPromises = []promise{
	{name: "connection", text: "The program is notified, in order, when its connection is lost, when its session ends, and when the " +
		"connection is back", test: connectionIsTold},
}

// A record contains the events of a connection.
type record struct {
	mu     sync.Mutex // guards the fields below
	states []second.ConnectionState
	inside bool
	twice  bool // two calls ran at the same time
}

func (r *record) note(c second.Connection) {
	r.mu.Lock()
	r.twice = r.twice || r.inside
	r.inside = true
	r.states = append(r.states, c.State)
	r.mu.Unlock()
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	r.inside = false
	r.mu.Unlock()
}

func (r *record) take() []second.ConnectionState {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := r.states
	r.states = nil
	return states
}

func (r *record) last() second.ConnectionState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.states) == 0 {
		return ""
	}
	return r.states[len(r.states)-1]
}

func (r *record) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.inside
}

func connectionIsTold(s *scene) {
	p := s.victim()
	s.needs(p.Cut != nil, "cut a process off")
	s.used(p) // after this, the process is known to be connected
	r := new(record)
	p.Notify(r.note)
	s.await("the state of the connection", s.news(), func() bool { return slices.Equal(r.take(), []second.ConnectionState{second.Connected}) })
	back := func() {
		s.await("the connection is back", s.patience(), func() bool { return r.last() == second.Connected })
	}

	heal := s.cut(p)
	s.await("the connection is away", s.Lease, func() bool { return r.last() == second.Suspended })
	heal()
	back()
	if states := r.take(); !slices.Equal(slices.DeleteFunc(slices.Clone(states), is(second.Expired)),
		[]second.ConnectionState{second.Suspended, second.Connected}) {
		s.Errorf("events for a short outage: %v", states)
	}

	heal = s.cut(p)
	time.Sleep(2*s.Lease + s.Lease/8)
	heal()
	back()
	if states := r.take(); !slices.Equal(states, []second.ConnectionState{second.Suspended, second.Expired, second.Connected}) {
		s.Errorf("events for an outage that the session did not survive: %v", states)
	}
	s.release(p.acquire())
	p.Close()
	s.await("the listener returns, although no call waits for it", s.patience(), r.idle)
	if end := r.last(); end != "" && end != second.Connected { // on a busy machine, the connection may have ended and come back
		s.Errorf("events for a Close by the program: %v", r.take())
	}
	if r.twice {
		s.Errorf("two events were reported at the same time")
	}
	s.none()
}

func is[T comparable](want T) func(T) bool { return func(got T) bool { return got == want } }
