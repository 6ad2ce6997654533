// Package memlock is a store in memory. Package memlock provides the same lock as a server, between the registries of one program.
//
// Use it to test code that takes locks, for a program that still runs as a single process, and for experiments. A [Server] is the store.
// Each registry that [Server.Connect] returns represents a separate process. Package tier documents the lock, which is the same on every
// store.
//
//	server := memlock.NewServer()
//	locks, err := server.Connect()
//
// # In tests
//
// This test checks that a job stops when its lock is lost:
//
//	synctest.Test(t, func(t *testing.T) {
//		server := memlock.NewServer()
//		locks, err := server.Connect()
//		if err != nil {
//			t.Fatal(err)
//		}
//		defer locks.Close()
//		err = locks.Mutex("/jobs/report").Do(t.Context(), func(ctx context.Context) error {
//			server.CutOff(locks)
//			return makeReport(ctx) // the lease ends while it works
//		})
//		if !errors.Is(err, tier.ErrLost) {
//			t.Error(err)
//		}
//	})
//
// The methods of Server inject faults: a network partition, an expired session, slow requests, lost answers, a stopped server. In a bubble
// of testing/synctest, time is virtual: a lease of 15 s ends exactly at its deadline, without a real wait. Create the server and its
// registries inside the bubble, and close each registry before the bubble ends. With the default TTL a process loses its locks 10 s after
// [Server.CutOff], and at once after [Server.Expire].
//
// To test a ZooKeeper client with the wire protocol, use package zktest instead.
//
// # What is promised
//
// memlock keeps every promise of package tier while the program runs. The locks end with the program, and do not exclude other programs.
// Hold.Save is the only guarded write.
package memlock

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A Server is a store in memory. Its methods may be called concurrently. A Server needs no Close: its memory is freed after its last
// registry is closed and its last session has ended.
type Server struct {
	store *memory.Server

	mu        sync.Mutex // guards the field below
	processes map[*tier.Registry]*memory.Process
}

// NewServer returns an empty store.
func NewServer() *Server {
	return &Server{store: memory.NewServer(), processes: make(map[*tier.Registry]*memory.Process)}
}

// Connect returns a registry that represents another process, with its own session and its own place in each queue. Goroutines that use
// the registry represent goroutines of that process. Close the registry to end the process. Connect does not block. It returns an error
// only if an option is wrong. [tier.WithLazyStart] has no effect.
func (s *Server) Connect(opts ...tier.RegistryOption) (*tier.Registry, error) {
	o := second.Defaults
	_, share, err := second.Split[none, tier.Option](&o, opts)
	if err := cmp.Or(err, o.Check(math.MaxInt64, 1)); err != nil {
		return nil, fmt.Errorf("memlock: %w", err)
	}
	p := s.store.Connect("memlock", o)
	locks := tier.New(p.Tier, share...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[locks] = p
	p.OnClose(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.processes, locks)
	})
	return locks, nil
}

// A none would be an option that only this store has. There are no such options.
type none struct{ tier.RegistryOption }

// The method process returns the process of a registry. A closed registry has no process, so no fault can affect it.
func (s *Server) process(locks *tier.Registry) *memory.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[locks]
}

// CutOff blocks all messages between a process and the server until heal is called. The process loses its locks after two thirds of its
// TTL. The server grants these locks to other processes after a whole TTL. CutOff and the other faults have no effect on a registry that
// is closed or belongs to another server.
func (s *Server) CutOff(locks *tier.Registry) (heal func()) {
	if p := s.process(locks); p != nil {
		return p.Cut()
	}
	return func() {}
}

// Expire ends the session of a process early, as an operator can. The process loses all its locks, learns of the loss at once, and starts
// a new session.
func (s *Server) Expire(locks *tier.Registry) {
	if p := s.process(locks); p != nil {
		p.Expire()
	}
}

// Delay delays each later request of a process by d, also the renewals of its session. Call Delay with 0 to end the delay. If d is more
// than a third of the TTL, the process loses its locks.
func (s *Server) Delay(locks *tier.Registry, d time.Duration) {
	if p := s.process(locks); p != nil {
		p.Delay(d)
	}
}

// LoseAnswers drops the answers to the next n requests of a process, except renewals. The server executes these requests. The process does
// not know whether its requests took effect, as after a broken connection. It repeats them within a third of the TTL.
func (s *Server) LoseAnswers(locks *tier.Registry, n int) {
	if p := s.process(locks); p != nil {
		p.LoseAnswers(n)
	}
}

// Pause stops the server until resume is called. A stopped server answers no request and ends no session. Processes lose their locks after
// two thirds of their TTL. After resume, the server executes the requests that were sent while it was stopped.
func (s *Server) Pause() (resume func()) { return sync.OnceFunc(s.store.Freeze()) }
