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

// Config is the configuration of a server. The zero value has ZooKeeper's defaults for a tick of two seconds.
type Config struct {
	MinSessionTimeout time.Duration // shortest session timeout that the server grants; 4 s if zero
	MaxSessionTimeout time.Duration // longest session timeout that the server grants; 40 s if zero
	ContainerCheck    time.Duration // interval at which empty containers are deleted; 60 s if zero

	// Latency is the time in which a frame travels between a client and its member: half a round trip. Several frames may travel at the same
	// time. Messages between members take no time.
	Latency time.Duration

	// Tick makes all members followers of a leader to which no client is connected. The leader pings the members every half tick, and learns
	// only then which sessions are alive. If Tick is zero, the leader learns of each request at once.
	Tick time.Duration
}

// A Server is an ensemble of one or more members in this process. All methods may be called concurrently.
type Server struct {
	cfg  Config
	made time.Time // the time of creation, on the wall clock or on the clock of a synctest bubble

	wg sync.WaitGroup // goroutines of connections and listeners

	mu           sync.Mutex // guards the fields below and all other fields that are said to be guarded; never locked during a wait
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
	reaper       *time.Timer // fires at the next check of the containers; nil while there are no containers
	pinger       *time.Timer // fires at the next ping of the members; nil if Tick is zero
}

// NewServer is [Start] for programs that are not tests: the server runs until Close. If a server serves clients inside a synctest bubble,
// create it inside the same bubble. NewServer panics if the limits of cfg contradict each other.
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
		lastSession:  1 << 56, // a real server puts its own id into the highest byte
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

// DialContext connects to the member at address through an in-memory pipe; see [Server.Member]. It ignores network. It fails with
// ECONNREFUSED if the member refuses connections or the server is closed, and with the cause of ctx if ctx has ended. It panics if only one
// of the two is inside the synctest bubble: the caller, or the place where the server was created.
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

// DialTimeout is DialContext with the signature of [net.DialTimeout], for the Go client's Dialer. DialTimeout never waits, and ignores
// timeout.
func (s *Server) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return s.DialContext(context.Background(), network, address) // this signature has no context
}

// Listen also serves TCP on addr, until Close. Listen returns the address of the member that it serves; see [Server.Member]. Clients
// inside a synctest bubble cannot use TCP, because their virtual time would not advance.
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

// serve starts to serve a connection. If the member refuses the connection, serve closes it and returns false.
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

// Close closes every connection and every listener. Close returns when all goroutines of the server have ended. Sessions end without
// events. A second Close does nothing.
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

// Start returns a running server with an empty tree. The server closes at the end of the test, after the cleanup functions that the test
// registers later. At most one cfg may be given; the default is the zero [Config]. Inside a synctest bubble, call Start with the bubble's
// t: the server then belongs to the bubble and ends in it. Clients inside a bubble cannot dial a server that was created outside.
func Start(t interface{ Cleanup(func()) }, cfg ...Config) *Server {
	if len(cfg) > 1 {
		panic("zktest: Start takes one Config")
	}
	s := NewServer(append(cfg, Config{})[0])
	t.Cleanup(s.Close)
	return s
}

// apart is longer than any bubble runs, and more than any clock is wrong.
const apart = 365 * 24 * time.Hour

// sameClock panics unless its caller uses the clock with which the server was created. A server and its clients have to be in the same
// synctest bubble, or all of them have to be outside of any bubble. Without this check, a client with another clock would fail somewhere
// else, without a hint at the cause.
//
// A program cannot ask whether it is in a bubble. But time in a bubble begins with the year 2000, so a difference of years shows that only
// one of two times comes from a bubble. Two bubbles cannot be distinguished.
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
	Timeout    time.Duration // negotiated session timeout
	Member     string        // address of the member to which the client is connected; "" while disconnected
	Ephemerals []string      // paths of its nodes, sorted
}

// Sessions returns the live sessions in the order of their creation. A registry that zklock.Dial returns has one session. When Dial
// returns, this session is the last one of the list.
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

// Expire ends a session now, as if its timeout had passed without a message. Its ephemeral nodes are deleted, and its connection is
// closed. The client learns of the end when it reconnects. Expire reports whether the session existed.
func (s *Server) Expire(session int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess, ok := s.sessions[session]
	if ok {
		s.expireLocked(sess)
	}
	return ok
}

// Cut closes the connection of a session. The session stays. Cut reports whether the session had a connection.
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

// CutAll closes all connections. The sessions stay.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.cutLocked()
	}
}

// Mute blocks one direction of a session's traffic, like a network partition. Until Unmute, no frame arrives on the session's connection,
// or on connections that its client tries to open. At Unmute, connections that are still open deliver the blocked frames.
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

// Freeze stops all members as SIGSTOP would; see [Member.Freeze]. No session expires while the server is frozen.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == nil {
		s.frozen = make(chan struct{})
	}
}

// Unfreeze continues a frozen server. Like a real server may do, it first expires the sessions whose timeout has passed, and then
// processes the requests that it has received.
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

// gateLocked returns a channel that is closed when nothing blocks the given direction of a connection any more. If nothing blocks it now,
// gateLocked returns nil.
func (s *Server) gateLocked(c *conn, dir Direction) <-chan struct{} {
	switch {
	case s.frozen != nil:
		return s.frozen
	case c.member.frozen != nil:
		return c.member.frozen
	}
	return s.muted[mute{c.claim, dir}]
}

// SetSequence makes n the number of the next sequential node below parent. It panics if parent does not exist or n is negative.
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
	Op      string // what happened to the node: create, delete, setData or setACL
	Path    string
	Session int64 // session that requested the change, or whose end caused it; zero if the server made the change by itself
}

// OnChange sets a function f that the server calls after each transaction that changes a node. f gets the new state, and all changes of the
// transaction in order. A nil f ends the calls. The server makes one call at a time, before the next transaction, and before any client can
// learn of the transaction. The view is valid only during the call. The server is locked, so f must not call its methods. f must not call
// t.Fatal, because it may run on a goroutine of the server.
func (s *Server) OnChange(f func(View, []Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onChange = f
}

// A View reads the tree at one moment, without access control.
type View struct{ tree *tree }

// Zxid returns the id of the last applied transaction.
func (v View) Zxid() int64 { return v.tree.zxid }

// Exists reports whether the node at path exists.
func (v View) Exists(path string) bool { return v.tree.nodes[path] != nil }

// Children returns the sorted names of the children of path. It returns nil if there are no children, or if path does not exist.
func (v View) Children(path string) []string { return v.tree.children[path].sorted() }

// Get returns the data and the Stat of the node at path. ok is false if the node does not exist.
func (v View) Get(path string) (data []byte, stat zk.Stat, ok bool) {
	n := v.tree.nodes[path]
	if n == nil {
		return nil, zk.Stat{}, false
	}
	return slices.Clone(n.data), n.Stat(), true
}

// Zxid returns the id of the last applied transaction.
func (s *Server) Zxid() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Zxid()
}

// Exists reports whether the node at path exists.
func (s *Server) Exists(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Exists(path)
}

// Children returns the sorted names of the children of path. It returns nil if there are no children, or if path does not exist.
func (s *Server) Children(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Children(path)
}

// Get returns the data and the Stat of the node at path. ok is false if the node does not exist.
func (s *Server) Get(path string) (data []byte, stat zk.Stat, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return View{s.tree}.Get(path)
}

// Watches returns the number of watches on all members. Each connection, path and kind (data or children) counts as one watch.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.members {
		n += m.watches.data.count() + m.watches.child.count()
	}
	return n
}
