package sim

import (
	"context"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/zktest"
)

// arm lets frames of the process meet a fault.
func (p *actor) arm(f fault.Fault) *fault.Armed {
	about := f.About
	f.About = func(frame *zktest.Frame) bool { return p.uses(frame.Member) && (about == nil || about(frame)) }
	return p.scene.faults.Arm(f)
}

// at is what frames are about that name the path.
func at(path string) func(f *zktest.Frame) bool {
	return func(f *zktest.Frame) bool { return f.Path == path }
}

func (s *scene) intercept(f *zktest.Frame) zktest.Action {
	s.note(f)
	return s.faults.Intercept(f)
}

// note keeps what a frame tells about who asks for what.
func (s *scene) note(f *zktest.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Dir == zktest.Reply && f.Op == "connect" {
		for _, p := range s.actors {
			if p.uses(f.Member) {
				s.homes[f.Session] = p.servers[0]
			}
		}
	}
	heartbeat := f.Op == "ping" || f.Op == "sync" && f.Path == "/"
	if f.Dir == zktest.Request && !heartbeat {
		s.sent = append(s.sent, *f)
	}
}

// asked returns the requests so far, but for heartbeats.
func (s *scene) asked() []zktest.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// heal ends all faults.
func (s *scene) heal() {
	s.faults.Clear()
	s.mu.Lock()
	processes, sessions := s.actors, slices.Collect(maps.Keys(s.homes))
	s.mu.Unlock()
	s.srv.Unfreeze()
	for _, session := range sessions { // also of those that are over: their clients do not know
		s.srv.Unmute(session, zktest.Request)
		s.srv.Unmute(session, zktest.Reply)
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
