// Package memlock is a store in memory: the same lock as on a server, between registries of one program.
//
// Use it to test code that takes locks, without a server; for a program that runs as one process today; and to try things.
// A [Server] is the store, and each [Server.Connect] is a process of its own. Package tier documents the lock, which is the same
// on every store.
//
//	server := memlock.NewServer()
//	locks, err := server.Connect()
//
// # In tests
//
// This test sees that a job stops when its lock is lost:
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
// The methods of Server make the faults that a real store meets: a process that is cut off, a session that ends, requests that are
// late, answers that are lost, a server that stands still. In a bubble of testing/synctest time is virtual, if the server and its
// registries are made in the bubble: a lease of 15 s then ends at its deadline, after no time. Close each registry before the bubble
// ends. With the default TTL a process loses its locks 10 s after [Server.CutOff], and at once
// after [Server.Expire].
//
// Package zktest is a ZooKeeper for tests. It shows what the client for ZooKeeper does; memlock shows what the lock does.
//
// # What is promised
//
// All that package tier promises, as long as the program runs. Nothing outlives it. Other programs do not see the locks, and guarded
// writes do not exist here.
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

// A Server is a store. Its methods may be called concurrently. It needs no Close: its memory is freed after its last registry has been
// closed and the last session has ended.
type Server struct {
	store *memory.Server

	mu        sync.Mutex // guards the field below
	processes map[*tier.Registry]*memory.Process
}

// NewServer returns an empty store.
func NewServer() *Server {
	return &Server{store: memory.NewServer(), processes: make(map[*tier.Registry]*memory.Process)}
}

// Connect returns the locks of one more process. Each registry is a process of its own, with a session and a place in each queue; the
// goroutines that use one registry are the goroutines of that process. Close the registry when the process ends. An error says which
// option is wrong. [tier.WithLazyStart] changes nothing: the store is there.
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

// none is the type of this store's own options: there are none.
type none struct{ tier.RegistryOption }

// process is that of a registry. A registry that is closed has none, and so no fault concerns it.
func (s *Server) process(locks *tier.Registry) *memory.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.processes[locks]
}

// CutOff keeps everything from getting through between a process and the server, until heal is called. The process loses what it holds
// after two thirds of its TTL, and the server gives it to others after a whole TTL. CutOff of a registry that is closed, or is not of
// this server, does nothing; so it is with the other faults.
func (s *Server) CutOff(locks *tier.Registry) (heal func()) {
	if p := s.process(locks); p != nil {
		return p.Cut()
	}
	return func() {}
}

// Expire ends the session of a process before its time, as an operator would. What the process holds is lost. It learns that at once,
// and begins another session.
func (s *Server) Expire(locks *tier.Registry) {
	if p := s.process(locks); p != nil {
		p.Expire()
	}
}

// Delay has each request of a process take d to the server from now on; 0 ends that. Renewals of its session are delayed as well, and
// with delays of more than a third of the TTL locks are lost.
func (s *Server) Delay(locks *tier.Registry, d time.Duration) {
	if p := s.process(locks); p != nil {
		p.Delay(d)
	}
}

// LoseAnswers loses the answers to the next n requests of a process, but for renewals. The server has executed them, so the process does
// not know what became of them, as after a connection that broke. It asks again, after a third of the TTL at most, until it knows.
func (s *Server) LoseAnswers(locks *tier.Registry, n int) {
	if p := s.process(locks); p != nil {
		p.LoseAnswers(n)
	}
}

// Pause stops the server until resume is called: it answers nobody and ends no session. It then executes what was sent meanwhile.
// Processes lose what they hold after two thirds of their TTL.
func (s *Server) Pause() (resume func()) { return sync.OnceFunc(s.store.Freeze()) }
