package zktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Config says how a server runs. The zero value is a server with ZooKeeper's defaults at a tick of two seconds.
type Config struct {
	MinSessionTimeout time.Duration // shorter requests get this; 4 s if zero
	MaxSessionTimeout time.Duration // longer requests get this; 40 s if zero
	ContainerCheck    time.Duration // interval at which empty containers are deleted; 60 s if zero

	// Latency is how long a frame is on its way between a client and its member: half a round trip. It does not keep
	// the next one from leaving. Among the members nothing takes any time.
	Latency time.Duration

	// Tick makes the members followers of a leader that no client is connected to: it hears of their sessions when it
	// pings them, every half tick. If it is zero, the leader hears of each request at once.
	Tick time.Duration
}

// A Server is an ensemble of one or more members in this process. All methods may be called concurrently.
type Server struct {
	cfg  Config
	made time.Time // on the wall clock, or on that of its bubble

	wg sync.WaitGroup // goroutines of connections and listeners

	mu           sync.Mutex // guards the fields below and whatever says so; never held while waiting
	tree         *tree
	members      map[string]*Member
	sessions     map[int64]*session
	lastSession  int64
	conns        map[*conn]struct{}
	listeners    []net.Listener
	closed       bool
	frozen       chan struct{} // closed by Unfreeze; nil while running
	muted        map[mute]chan struct{}
	hook         func(*Frame) Action
	nth          map[Op]int
	nthOfSession map[opCount]int
	onChange     func(View, []Change)
	reaper       *time.Timer // next look at containers; nil while there are none
	pinger       *time.Timer // next ping of the members; nil without a tick
}

// NewServer is [Start] where there is no test: the server runs until Close.
// A server that serves clients inside a synctest bubble must be made inside that bubble.
// It panics if the limits of cfg contradict each other.
func NewServer(cfg Config) *Server {
	setDefault(&cfg.MinSessionTimeout, 4*time.Second)
	setDefault(&cfg.MaxSessionTimeout, 40*time.Second)
	setDefault(&cfg.ContainerCheck, time.Minute)
	if cfg.MinSessionTimeout > cfg.MaxSessionTimeout {
		panic(fmt.Sprintf("zktest: MinSessionTimeout %v exceeds MaxSessionTimeout %v",
			cfg.MinSessionTimeout, cfg.MaxSessionTimeout))
	}
	s := &Server{
		cfg:          cfg,
		made:         time.Now().Round(0),
		tree:         newTree(),
		members:      make(map[string]*Member),
		sessions:     make(map[int64]*session),
		lastSession:  1 << 56, // a real server puts its id into the top byte
		conns:        make(map[*conn]struct{}),
		muted:        make(map[mute]chan struct{}),
		nth:          make(map[Op]int),
		nthOfSession: make(map[opCount]int),
	}
	if cfg.Tick > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pinger = time.AfterFunc(cfg.Tick/2, s.ping)
	}
	return s
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// DialContext connects to the member at address through an in-memory pipe, whatever the network; see [Server.Member].
// It fails with ECONNREFUSED if the member refuses or the server is closed, and with the cause of ctx if that is done.
// It panics if it is called inside a synctest bubble and the server was made outside, or the other way round.
func (s *Server) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if ctx.Err() != nil {
		return nil, dialError(network, context.Cause(ctx))
	}
	s.sameClock()
	client, server := net.Pipe()
	if !s.serve(server, address) {
		return nil, dialError(network, syscall.ECONNREFUSED)
	}
	return client, nil
}

func dialError(network string, err error) error {
	return &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("zktest: %w", err)}
}

// DialTimeout is DialContext in the shape of [net.DialTimeout], which is that of the Go client's Dialer.
// It never waits, so timeout does not matter.
func (s *Server) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return s.DialContext(context.Background(), network, address) // there is none to pass on
}

// Listen also serves TCP on addr, until Close. The address it returns is that of the member; see [Server.Member].
// Clients inside a synctest bubble cannot use it: their time would stand still.
func (s *Server) Listen(addr string) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("zktest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(fmt.Errorf("zktest: listen on %s: %w", addr, net.ErrClosed), l.Close())
	}
	s.listeners = append(s.listeners, l)
	s.wg.Go(func() { s.accept(l) })
	return l.Addr(), nil
}

func (s *Server) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		s.serve(nc, l.Addr().String())
	}
}

// serve starts serving a connection; it closes it and returns false if the member refuses.
func (s *Server) serve(nc net.Conn, address string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memberLocked(address)
	if s.closed || m.refuses || m.givenUpLocked() {
		nc.Close()
		return false
	}
	c := &conn{
		server: s, member: m, nc: nc,
		in: newQueue[travelling](), out: newQueue[outgoing](), away: newQueue[travelling](), done: make(chan struct{}),
	}
	s.conns[c] = struct{}{}
	s.wg.Go(c.read)
	s.wg.Go(c.process)
	s.wg.Go(c.write)
	s.wg.Go(c.deliver)
	return true
}

// Close closes every connection and listener and returns when all goroutines of the server have ended. Sessions end
// without a trace. A second Close does nothing.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		l.Close()
	}
	s.listeners = nil
	for c := range s.conns {
		c.cutLocked()
	}
	for _, sess := range s.sessions {
		sess.timer.Stop()
	}
	if s.reaper != nil {
		s.reaper.Stop()
	}
	if s.pinger != nil {
		s.pinger.Stop()
	}
	for _, m := range s.members {
		if m.link.limit != nil {
			m.link.limit.Stop()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}
