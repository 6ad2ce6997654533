package explore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const (
	lockPath  = "/locks/a" // lockPath and otherPath exist from the beginning
	otherPath = "/locks/b"

	sessionTimeout = 6 * time.Second // each process asks for this timeout, and gets it
	lease          = 4 * time.Second // the session timeout without the default margin

	// In a healthy ensemble, everything has to happen within the time bound. It is long enough for sessions of dead processes to expire,
	// and for the periodic read of the queue.
	bound = 3 * sessionTimeout
)

// A scene is an ensemble, and the processes that use locks in it, in virtual time. At its end, every scene checks that no two processes
// ever held the lock at once, that another process can acquire it, and that nothing is left behind.
type scene struct {
	*testing.T
	srv        *zktest.Server
	grants     atomic.Int64
	faults     fault.Set
	background sync.WaitGroup // goroutines that have to end before the scene does

	mu       sync.Mutex       // guards the fields below; never held across a call of the server
	sent     []zktest.Frame   // requests that have arrived, pings left out
	homes    map[int64]string // session → address of its process
	owners   map[string]int64 // lock node → session that made it
	created  []string         // lock nodes in order of creation
	actors   []*actor
	turns    []*turn
	operator *zk.Conn
}

func play(f func(s *scene)) func(t *testing.T) {
	return func(t *testing.T) {
		// Virtual time stands still while a goroutine waits for a sync.Mutex. Without this real timer, a deadlock in the client library
		// would hang the test without a report.
		still := time.AfterFunc(time.Minute, func() { panic(t.Name() + ": time stands still") })
		defer still.Stop()
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t)
			f(s)
			s.finish()
		})
	}
}

// The function each returns a test that runs f once for every variant of a scenario.
func each[V any](variants map[string]V, f func(s *scene, v V)) func(t *testing.T) {
	return func(t *testing.T) {
		for name, v := range variants {
			t.Run(name, play(func(s *scene) { f(s, v) }))
		}
	}
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T:      t,
		srv:    zktest.Start(t, zktest.Config{MinSessionTimeout: time.Second, ContainerCheck: time.Hour}),
		homes:  make(map[int64]string),
		owners: make(map[string]int64),
	}
	t.Cleanup(s.background.Wait)
	s.srv.Intercept(s.intercept)
	s.srv.OnChange(s.observe)
	for _, path := range []string{"/locks", lockPath, otherPath} {
		_, err := s.admin().Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		s.must(err)
	}
	return s
}

// observe checks that no process deletes the node of another one.
func (s *scene) observe(view zktest.View, changes []zktest.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		switch kind, _, ok := zkqueue.ParseName(c.Path); {
		case !ok || kind == zkqueue.KindKazoo || kind == zkqueue.KindKazooRead:
		case c.Op == "create":
			s.owners[c.Path] = c.Session
			s.created = append(s.created, c.Path)
		case c.Op == "delete":
			by, of := s.homes[c.Session], s.homes[s.owners[c.Path]]
			if by != "" && by != of {
				s.Errorf("the process at %s deleted %s of the process at %s", by, c.Path, of)
			}
		}
	}
}

// nodes returns how many lock nodes have been created so far.
func (s *scene) nodes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.created)
}

// requests returns how many requests of a kind the process has sent so far.
func (p *actor) requests(ops ...string) int {
	p.scene.mu.Lock()
	defer p.scene.mu.Unlock()
	n := 0
	for _, f := range p.scene.sent {
		for _, op := range ops {
			if f.Op == op && p.uses(f.Member) {
				n++
			}
		}
	}
	return n
}

// The method eventually lets virtual time pass until the condition holds.
func (s *scene) eventually(within time.Duration, what string, holds func() bool) {
	s.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		synctest.Wait()
		if holds() {
			return
		}
		need.Must(s, fmt.Sprintf("not within %v: %s", within, what), !time.Now().After(deadline))
	}
}

// The method finish ends all faults, and checks what must be true at the end of any scene.
func (s *scene) finish() {
	s.Helper()
	s.heal()
	s.background.Wait()
	for _, u := range s.turns {
		u.end()
	}
	s.operator.Close()
	s.eventually(bound, "nothing is left behind", func() bool { return s.leftovers() == "" })
	another := s.join(role{})
	for _, path := range s.paths() {
		another.acquireAt(path).end()
	}
	for _, p := range s.actors {
		p.locks.Close()
	}
	synctest.Wait()
	need.Equal(s, "after everybody has gone", s.leftovers(), "")
	s.checkExclusion()
}

func (s *scene) leftovers() string {
	var left []string
	for _, sess := range s.srv.Sessions() {
		left = append(left, sess.Ephemerals...)
	}
	for _, p := range s.actors {
		if n := p.reaping(); n > 0 && !errors.Is(p.client.Err(), second.ErrClosed) {
			left = append(left, fmt.Sprintf("%d to reap at %s", n, p.servers[0]))
		}
	}
	return strings.Join(left, ", ")
}

func (s *scene) paths() []string {
	seen := map[string]bool{lockPath: true}
	paths := []string{lockPath}
	for _, u := range s.turns {
		if u.hold != nil && !seen[u.path] {
			seen[u.path] = true
			paths = append(paths, u.path)
		}
	}
	return paths
}

// admin returns the connection of the operator. The operator uses no locks.
func (s *scene) admin() *zk.Conn {
	s.Helper()
	if s.operator == nil {
		s.operator = s.connectTo(s.srv)
	}
	return s.operator
}

func (s *scene) connectTo(srv *zktest.Server) *zk.Conn {
	s.Helper()
	return zkconn.Start(s, []string{"127.0.0.1:2181"}, 40*time.Second, srv.DialTimeout)
}

// scene.must is for steps that only prepare a scene. It fails the test if such a step fails.
func (s *scene) must(err error) {
	s.Helper()
	need.OK(s, err)
}

func (s *scene) wantErr(err error, targets ...error) {
	s.Helper()
	for _, target := range targets {
		need.WantErr(s, "error", err, target)
	}
}

// scene.in returns a context that ends after d, in the middle of a scene.
func (s *scene) in(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	s.Cleanup(cancel)
	return ctx
}

// An actor is a process in a scene. It connects to members of the ensemble that no other process uses.
type actor struct {
	client  *zknode.Client
	locks   *tier.Registry
	scene   *scene
	servers []string
	net     *network
}

// The method begin tries to connect until it succeeds, or until ctx ends.
func (p *actor) begin(ctx context.Context, r role) error {
	options := append([]zknode.Option{
		zknode.WithDialContext(p.net.dial), zknode.WithSessionTimeout(sessionTimeout), zknode.WithLogger(slog.New(slog.DiscardHandler)),
	}, r.zk...)
	client, err := zknode.Dial(ctx, strings.Join(p.servers, ","), options...)
	if err != nil {
		return err
	}
	p.client, p.locks = client, tier.New(zknode.Tier(client), r.tier...)
	return nil
}

// reaping returns the number of nodes that the process still has to delete in the background.
func (p *actor) reaping() int {
	return zknode.Tier(p.client).(interface{ Reaping() int }).Reaping()
}

// A role contains the settings of a process that differ from the defaults.
type role struct {
	members int // how many members of the ensemble the process knows; 0 means 1
	zk      []zknode.Option
	tier    []tier.Option // options of its registry; nil means strict
}

// The option in strict makes each release give up the node.
var strict = []tier.Option{tier.WithStrictOrder()}

func (s *scene) join(r role) *actor {
	s.Helper()
	p := &actor{scene: s, net: &network{srv: s.srv}}
	for i := range max(r.members, 1) {
		p.servers = append(p.servers, fmt.Sprintf("127.1.%d.%d:2181", len(s.actors), i+1))
	}
	if r.tier == nil {
		r.tier = strict
	}
	s.mu.Lock()
	s.actors = append(s.actors, p)
	s.mu.Unlock()
	s.must(p.begin(s.in(time.Minute), r))
	s.Cleanup(func() { p.locks.Close() })
	s.Cleanup(p.net.resume)
	return p
}

func (p *actor) uses(member string) bool { return slices.Contains(p.servers, member) }

// The method session returns the live session of the process, which has to be connected.
func (p *actor) session() int64 {
	p.scene.Helper()
	return p.connection().ID
}

// The method member returns the address of the member to which the process is connected.
func (p *actor) member() string {
	p.scene.Helper()
	return p.connection().Member
}

func (p *actor) connection() zktest.Session {
	p.scene.Helper()
	synctest.Wait()
	for _, sess := range p.scene.srv.Sessions() {
		if p.uses(sess.Member) {
			return sess
		}
	}
	p.scene.Fatalf("the process at %s has no session", p.servers[0])
	return zktest.Session{}
}

// unplug breaks the connection and prevents new ones.
func (p *actor) unplug() {
	for _, addr := range p.servers {
		p.scene.srv.Member(addr).Refuse()
		p.scene.srv.Member(addr).Cut()
	}
}

func (p *actor) plug() {
	for _, addr := range p.servers {
		p.scene.srv.Member(addr).Accept()
	}
}

// A turn is one acquisition, from the call of Acquire to the release.
type turn struct {
	actor  *actor
	path   string
	outer  *turn // the turn whose hold is in the context of this call; nil if there is none
	cancel context.CancelFunc
	done   chan struct{} // closed when Acquire has returned
	over   chan struct{} // closed when the owner has finished its section
	ended  chan struct{} // closed when the turn is over or lost

	hold *tier.Hold // hold and err are valid when done is closed
	err  error

	since, until time.Time // since is valid when done is closed, and until is valid when ended is closed
	number       int       // the number of the grant, because several grants may come at the same virtual instant
}

// start calls Acquire in a goroutine of its own.
func (p *actor) start(ctx context.Context) *turn { return p.startAt(ctx, lockPath) }

func (p *actor) startAt(ctx context.Context, path string) *turn {
	return p.startWith(ctx, p.locks.Mutex(path), nil)
}

// startWith is like start, with a given lock of the process. If outer is not nil, the call is made within that hold.
func (p *actor) startWith(ctx context.Context, mu *tier.Mutex, outer *turn) *turn {
	if outer != nil {
		ctx = outer.hold.Context(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	u := &turn{
		actor: p, path: mu.Path(), outer: outer, cancel: cancel,
		done: make(chan struct{}), over: make(chan struct{}), ended: make(chan struct{}),
	}
	p.scene.mu.Lock()
	p.scene.turns = append(p.scene.turns, u)
	p.scene.mu.Unlock()
	go func() {
		defer close(u.done)
		if u.hold, u.err = mu.Acquire(ctx); u.err == nil {
			u.since = time.Now()
			u.number = int(p.scene.grants.Add(1))
			go u.watch()
		}
	}()
	return u
}

func (u *turn) watch() {
	defer close(u.ended)
	select {
	case <-u.hold.Lost():
	case <-u.over:
	}
	u.until = time.Now()
}

// The method queue starts an acquisition, and checks that it has to wait.
func (p *actor) queue(ctx context.Context) *turn {
	p.scene.Helper()
	u := p.start(ctx)
	u.waits()
	return u
}

// The method acquire acquires a lock that is free, or that becomes free in time.
func (p *actor) acquire() *turn { return p.acquireAt(lockPath) }

func (p *actor) acquireAt(path string) *turn {
	p.scene.Helper()
	return p.startAt(p.scene.Context(), path).granted(bound)
}

func (u *turn) pending() bool { return !need.Closed(u.done) }

// turn.waits checks that the acquisition has not returned.
func (u *turn) waits() {
	u.actor.scene.Helper()
	if synctest.Wait(); !u.pending() {
		u.actor.scene.Fatalf("Acquire: got %v, %v; want it to wait", u.hold, u.err)
	}
}

// The method granted waits until the lock is granted.
func (u *turn) granted(within time.Duration) *turn {
	u.actor.scene.Helper()
	if u.settled(within); u.err != nil {
		u.actor.scene.Fatalf("Acquire: %v", u.err)
	}
	synctest.Wait()
	return u
}

// The method failed waits for Acquire to return an error, and checks that the acquisition leaves nothing behind.
func (u *turn) failed(within time.Duration, targets ...error) {
	s := u.actor.scene
	s.Helper()
	if u.settled(within); u.err == nil {
		s.Fatalf("Acquire succeeded, want an error that wraps %v", targets)
	}
	s.wantErr(u.err, targets...)
}

func (u *turn) settled(within time.Duration) {
	u.actor.scene.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C: // events at the very instant of the deadline still count
		if synctest.Wait(); u.pending() {
			u.actor.scene.Fatalf("Acquire did not return within %v (connection: %v)", within, u.actor.client.Err())
		}
	}
}

// The method lost waits until the hold is lost.
func (u *turn) lost(within time.Duration) *turn {
	s := u.actor.scene
	s.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-u.ended:
	case <-timer.C: // events at the very instant of the deadline still count
		synctest.Wait()
	}
	need.Must(s, fmt.Sprintf("the loss was not noticed within %v", within), need.Closed(u.ended))
	s.wantErr(u.hold.Err(), tier.ErrLost)
	return u
}

// The method keeps checks that the turn still has the lock.
func (u *turn) keeps() {
	u.actor.scene.Helper()
	if synctest.Wait(); u.hold.Err() != nil {
		u.actor.scene.Fatalf("hold: %v", u.hold.Err())
	}
}

func (u *turn) release() error {
	close(u.over)
	<-u.ended
	return u.hold.Release()
}

// The method end ends an acquisition in any state.
func (u *turn) end() {
	u.cancel()
	<-u.done
	if u.hold == nil {
		return
	}
	if need.Closed(u.over) {
		return
	}
	if err := u.release(); err != nil && !errors.Is(err, tier.ErrLost) {
		u.actor.scene.Errorf("Release: %v", err)
	}
}

// checkExclusion checks that each hold began after all earlier holds had ended or were lost. The exceptions are holds of readers and
// reentrant holds. The check is exact, because it compares virtual times.
func (s *scene) checkExclusion() {
	s.Helper()
	held := slices.DeleteFunc(slices.Clone(s.turns), func(u *turn) bool { return u.hold == nil })
	slices.SortFunc(held, func(a, b *turn) int { return cmp.Compare(a.number, b.number) })
	for i, u := range held {
		for _, before := range held[:i] {
			if u.path != before.path || u.outer == before || u.hold.Shared() && before.hold.Shared() {
				continue
			}
			if u.since.Before(before.until) {
				s.Errorf("%s: granted to %s at %v, while %s held it until %v", u.path,
					u.actor.servers[0], u.since, before.actor.servers[0], before.until)
			}
			if u.hold.Token() < before.hold.Token() {
				s.Errorf("%s: token %d after %d", u.path, u.hold.Token(), before.hold.Token())
			}
		}
	}
}

// The method arm makes frames of the process meet a fault.
func (p *actor) arm(f fault.Fault) *fault.Armed {
	about := f.About
	f.About = func(frame *zktest.Frame) bool { return p.uses(frame.Member) && (about == nil || about(frame)) }
	return p.scene.faults.Arm(f)
}

// at(path) returns a filter for frames that name the path.
func at(path string) func(f *zktest.Frame) bool {
	return func(f *zktest.Frame) bool { return f.Path == path }
}

func (s *scene) intercept(f *zktest.Frame) zktest.Action {
	s.note(f)
	return s.faults.Intercept(f)
}

// The method note records which process has sent a request in a frame.
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

// The method heal ends all faults.
func (s *scene) heal() {
	s.faults.Clear()
	s.mu.Lock()
	processes, sessions := s.actors, slices.Collect(maps.Keys(s.homes))
	s.mu.Unlock()
	s.srv.Unfreeze()
	for _, session := range sessions { // includes sessions that have ended, because their clients may not know that yet
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

// A network is the connection between a process and its servers.
type network struct {
	mu      sync.Mutex // guards the fields below; no goroutine waits for anything else while it holds mu
	srv     *zktest.Server
	reads   chan struct{} // closed when reading may continue; nil while nothing stops it
	writes  chan struct{}
	onWrite func([]byte) (fail bool) // reports whether a write fails; nil: no write fails
}

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

// stall stops writing. Data that is written waits.
func (n *network) stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.writes == nil {
		n.writes = make(chan struct{})
	}
}

// The method stop stops both writing and reading. To other processes, that looks like a process that is stopped.
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

// A link is one connection. A stopped link stays stopped until resume is called, even if the connection is closed meanwhile, because a
// stopped process closes no connection.
type link struct {
	net.Conn
	network *network
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.network.mu.Lock()
	gate := l.network.reads
	l.network.mu.Unlock()
	if gate != nil {
		<-gate
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

// The method move makes later connections go to another ensemble.
func (n *network) move(srv *zktest.Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.srv = srv
}

// failWrites makes the connection break as soon as a frame is written for which fails returns true.
func (n *network) failWrites(fails func(frame []byte) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onWrite = fails
}
