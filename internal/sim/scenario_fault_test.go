package sim_test

import (
	"context"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// A fault is what happens to some frames of a process.
type fault struct {
	by    *process // nil: of everybody
	op    zktest.Op
	at    zktest.Stage
	is    func(f *zktest.Frame) bool // nil: any
	of    func(path string) bool     // nil: any
	times int                        // 0: until it is healed
	first func()                     // called before the first one meets its fate
	do    zktest.Action

	hit  chan struct{} // closed when it has struck first
	seen int
}

// fault arms a fault.
func (s *scene) fault(f fault) *fault {
	f.hit = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return &f
}

// struck returns how often a fault has struck.
func (s *scene) struck(f *fault) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f.seen
}

// lift disarms a fault.
func (s *scene) lift(f *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(other *fault) bool { return other == f })
}

func (s *scene) intercept(frame *zktest.Frame) zktest.Action {
	s.mu.Lock()
	if frame.Stage == zktest.Reply && frame.Op == zktest.OpConnect {
		for _, p := range s.processes {
			if p.uses(frame.Member) {
				s.homes[frame.Session] = p.servers[0]
			}
		}
	}
	heartbeat := frame.Op == zktest.OpPing || frame.Op == zktest.OpSync && frame.Path == "/"
	if frame.Stage == zktest.Request && !heartbeat {
		s.sent = append(s.sent, *frame)
	}
	for _, f := range s.faults {
		if !f.matches(frame) {
			continue
		}
		f.seen++
		struck := f.seen == 1
		s.mu.Unlock()
		if struck {
			if f.first != nil {
				f.first()
			}
			close(f.hit)
		}
		return f.do
	}
	s.mu.Unlock()
	return zktest.Pass
}

// asked returns the requests so far, but for heartbeats.
func (s *scene) asked() []zktest.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

func (f *fault) matches(frame *zktest.Frame) bool {
	return frame.Op == f.op && frame.Stage == f.at &&
		(f.times == 0 || f.seen < f.times) &&
		(f.by == nil || f.by.uses(frame.Member)) &&
		(f.is == nil || f.is(frame)) &&
		(f.of == nil || f.of(frame.Path))
}

// heal ends all faults.
func (s *scene) heal() {
	s.mu.Lock()
	s.faults = nil
	processes, sessions := s.processes, slices.Collect(maps.Keys(s.homes))
	s.mu.Unlock()
	s.srv.Unfreeze()
	for _, session := range sessions { // also of those that are over: their clients do not know
		s.srv.Unmute(session, zktest.ToServer)
		s.srv.Unmute(session, zktest.ToClient)
	}
	for _, p := range processes {
		p.net.resume()
		for _, addr := range p.servers {
			m := s.srv.Member(addr)
			m.Accept()
			m.Unfreeze()
			m.CatchUp()
			m.Rejoin()
		}
	}
}

// A network is what lies between a process and its servers.
type network struct {
	mu      sync.Mutex // guards the fields below; never held while waiting
	srv     *zktest.Server
	reads   chan struct{} // closed when reading goes on; nil while it does
	writes  chan struct{}
	timeout uint32                   // if not zero, what handshakes seem to grant, in milliseconds
	onWrite func([]byte) (fail bool) // nil: none fails
}

func newNetwork(srv *zktest.Server) *network { return &network{srv: srv} }

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	srv := n.srv
	n.mu.Unlock()
	conn, err := srv.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, network: n}, nil
}

// stall stops writing; what is written waits.
func (n *network) stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writes == nil {
		n.writes = make(chan struct{})
	}
}

// stop stops writing, and what was read does not arrive: all that a stopped process
// shows of itself.
func (n *network) stop() {
	n.stall()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reads == nil {
		n.reads = make(chan struct{})
	}
}

func (n *network) resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, gate := range []*chan struct{}{&n.reads, &n.writes} {
		if *gate != nil {
			close(*gate)
			*gate = nil
		}
	}
	n.onWrite = nil
}

// A link is one connection. What is stopped stays stopped until resume, even if the
// connection is closed meanwhile: a stopped process closes nothing.
type link struct {
	net.Conn
	network *network
	shaken  bool // the handshake was read; used by the reading goroutine only
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.network.mu.Lock()
	gate, timeout := l.network.reads, l.network.timeout
	l.network.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if !l.shaken && err == nil {
		l.shaken = true
		if timeout != 0 && n >= 12 {
			binary.BigEndian.PutUint32(p[8:], timeout)
		}
	}
	return n, err
}

func (l *link) Write(p []byte) (int, error) {
	l.network.mu.Lock()
	gate, onWrite := l.network.writes, l.network.onWrite
	l.network.mu.Unlock()
	if onWrite != nil && onWrite(p) {
		l.Close()
	}
	if gate != nil {
		<-gate
	}
	return l.Conn.Write(p)
}

// grant makes later handshakes grant another session timeout.
func (n *network) grant(timeout time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.timeout = uint32(timeout.Milliseconds())
}

// move lets later connections go to another ensemble.
func (n *network) move(srv *zktest.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.srv = srv
}

// failWrites breaks the connection instead of a write that fails.
func (n *network) failWrites(fails func(frame []byte) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onWrite = fails
}
