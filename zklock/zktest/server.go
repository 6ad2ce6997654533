package zktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
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
	nth          map[string]int
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
		nth:          make(map[string]int),
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

// Start returns a running server with an empty tree, which closes at the end of the test, after what the test itself
// cleans up. There may be one cfg; without it the server has the zero [Config].
// Inside a synctest bubble, call it with the bubble's t: the server then belongs to the bubble and ends in it. One that is made
// outside cannot be dialed inside.
func Start(t interface{ Cleanup(func()) }, cfg ...Config) *Server {
	if len(cfg) > 1 {
		panic("zktest: Start takes one Config")
	}
	s := NewServer(append(cfg, Config{})[0])
	t.Cleanup(s.Close)
	return s
}

// apart is more than a bubble runs, or a clock is set.
const apart = 365 * 24 * time.Hour

// sameClock panics unless its caller goes by the clock that made the server: a server and its clients have to be in the
// same synctest bubble, or all outside. Left alone, such a client would fail somewhere else, where nobody could tell why.
//
// There is no asking for a bubble, but time begins with the year 2000 in each. So two bubbles look alike.
func (s *Server) sameClock() {
	switch ago := time.Now().Round(0).Sub(s.made); {
	case ago < -apart:
		panic("zktest: the server was made outside of the synctest bubble in which it is dialed: call Start in the bubble, with its t")
	case ago > apart:
		panic("zktest: the server was made in a synctest bubble and is dialed outside of it")
	}
}

type mute struct {
	session int64
	dir     Direction
}

// A Session describes a live session.
type Session struct {
	ID         int64
	Timeout    time.Duration // as negotiated
	Member     string        // address of the member it is connected to; "" while disconnected
	Ephemerals []string      // paths of its nodes, sorted
}

// Sessions returns the live sessions in order of creation. A registry of zklock.Dial has one session, which is the last when
// Dial returns.
func (s *Server) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Session
	for _, sess := range s.sessions {
		item := Session{ID: sess.id, Timeout: sess.timeout, Ephemerals: s.tree.ephemerals[sess.id].sorted()}
		if sess.conn != nil {
			item.Member = sess.conn.member.addr
		}
		list = append(list, item)
	}
	slices.SortFunc(list, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Expire ends a session now, as if nothing had been heard of it for its timeout: its ephemeral nodes and its
// connection go, and its client will learn when it reconnects. It reports whether there was such a session.
func (s *Server) Expire(session int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, ok := s.sessions[session]
	if ok {
		s.expireLocked(sess)
	}
	return ok
}

// Cut closes the connection of a session, which stays. It reports whether there was one.
func (s *Server) Cut(session int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, ok := s.sessions[session]
	if !ok || sess.conn == nil {
		return false
	}
	sess.conn.cutLocked()
	return true
}

// CutAll closes every connection. The sessions stay.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.cutLocked()
	}
}

// Mute holds up one direction of a session as a network partition does: until Unmute nothing gets through on its
// present connection and on those it tries to make. What still stands then gets what was sent.
func (s *Server) Mute(session int64, dir Direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := (mute{session, dir}); s.muted[key] == nil {
		s.muted[key] = make(chan struct{})
	}
}

// Unmute ends Mute.
func (s *Server) Unmute(session int64, dir Direction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := mute{session, dir}
	if gate := s.muted[key]; gate != nil {
		close(gate)
		delete(s.muted, key)
	}
}

// Freeze stops all members as SIGSTOP would; see [Member.Freeze]. No session expires meanwhile.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		s.frozen = make(chan struct{})
	}
}

// Unfreeze continues a frozen server. Before it handles anything sent to it, it expires the sessions whose time has
// passed, which is what a real server may do.
func (s *Server) Unfreeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		return
	}
	close(s.frozen)
	s.frozen = nil
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if sess := s.sessions[id]; !time.Now().Before(sess.deadline) {
			s.expireLocked(sess)
		}
	}
}

// gateLocked is what holds up a direction of a connection, closed when it no longer does; nil if nothing does.
func (s *Server) gateLocked(c *conn, dir Direction) <-chan struct{} {
	switch {
	case s.frozen != nil:
		return s.frozen
	case c.member.frozen != nil:
		return c.member.frozen
	}
	return s.muted[mute{c.claim, dir}]
}

// SetSequence makes n the number of the next sequential node under parent. It panics if there is no such node or n
// is negative.
func (s *Server) SetSequence(parent string, n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.tree.nodes[parent]
	if old == nil || n < 0 {
		panic(fmt.Sprintf("zktest: SetSequence(%q, %d): no such node, or a negative number", parent, n))
	}
	t := s.beginLocked()
	t.edit(parent, old).creates = n
	s.commitLocked(t)
}

// A Change is one effect of a transaction.
type Change struct {
	Zxid    int64
	Op      string // what became of the node: create, delete, setData or setACL
	Path    string
	Session int64 // session that asked for it or ended; zero if the server did it of itself
}

// OnChange calls f after each transaction that changes a node, with the new state and all the transaction's changes in
// order; nil ends it. Calls come one at a time, before the next transaction and before any client can know of this
// one. The view is valid during the call. The server is locked: f must not call its methods, and as it
// may run on a goroutine of the server, not t.Fatal either.
func (s *Server) OnChange(f func(View, []Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = f
}

// A View reads the tree at one moment, past all access control.
type View struct{ tree *tree }

// Zxid is the last transaction applied.
func (v View) Zxid() int64 { return v.tree.zxid }

// Exists reports whether there is a node at path.
func (v View) Exists(path string) bool { return v.tree.nodes[path] != nil }

// Children returns the names of the children of path, sorted; nil if there are none or no node.
func (v View) Children(path string) []string { return v.tree.children[path].sorted() }

// Get returns the data and Stat of the node at path; ok is false if there is none.
func (v View) Get(path string) (data []byte, stat zk.Stat, ok bool) {
	n := v.tree.nodes[path]
	if n == nil {
		return nil, zk.Stat{}, false
	}
	return slices.Clone(n.data), n.Stat(), true
}

// Zxid is the last transaction applied.
func (s *Server) Zxid() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Zxid()
}

// Exists reports whether there is a node at path.
func (s *Server) Exists(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Exists(path)
}

// Children returns the names of the children of path, sorted; nil if there are none or no node.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Children(path)
}

// Get returns the data and Stat of the node at path; ok is false if there is none.
func (s *Server) Get(path string) (data []byte, stat zk.Stat, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Get(path)
}

// Watches is the number of watches set on all members: one for each connection, path and kind (data or children).
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.members {
		n += m.watches.data.count() + m.watches.child.count()
	}
	return n
}
