package explore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const port = ":2181"

// The names of nodes grow, so that what goes by their order is the same each time.
func init() {
	var n atomic.Uint64
	zkqueue.Random = func(id []byte) (int, error) {
		binary.BigEndian.PutUint64(id, n.Add(1)<<20) // above the digit that says whose it is
		return len(id), nil
	}
}

// An ensemble is a ZooKeeper in memory. A request is executed, and an answer or an event arrives, in a step of its own, in the order of
// its connection. Handshakes, pings and goodbyes get through at once.
type ensemble struct {
	*zktest.Server
	world  *queues
	opened atomic.Bool // all processes have a session
	conns  []func()    // end those that the client library has made

	mu     sync.Mutex         // guards the fields below
	mended *process           // whose next connection is no step
	newest map[*process]int64 // sessions
	ids    map[string]string  // of nodes, which are random, as they are in schedules
	count  map[string]int     // of these, by process
	passed map[zktest.Frame]bool
}

func newEnsemble(w *queues) *ensemble {
	e := &ensemble{
		Server: zktest.NewServer(zktest.Config{ContainerCheck: 24 * time.Hour}), world: w, newest: make(map[*process]int64),
		ids: make(map[string]string), count: make(map[string]int), passed: make(map[zktest.Frame]bool),
	}
	e.Intercept(e.hold)
	e.OnChange(e.judge)
	return e
}

// dial connects a process to a member of its own. To connect again is a step.
func (e *ensemble) dial(p *process) second.Tier {
	connect := func(ctx context.Context, network, address string) (net.Conn, error) {
		if e.opened.Load() && !e.isMended(p) && e.world.post(p, "connect", both) == lose {
			return nil, errors.New("there is no way")
		}
		return e.DialContext(ctx, network, address)
	}
	servers := strings.Repeat(p.name+port+",", 8) + p.name + port // at the end of which the library pauses
	options := []zklock.Option{zklock.WithSessionTimeout(lease), zklock.WithLabel(p.name), zklock.WithLogger(slog.New(slog.DiscardHandler))}
	var client *zklock.Client
	var err error
	if e.world.scope.Attached {
		client, err = zklock.Attach(e.library(member(p.name+port), connect), options...)
	} else {
		client, err = zklock.Dial(context.Background(), servers, append(options, zklock.WithDialContext(connect))...)
	}
	if err != nil {
		e.world.Fatal(err)
	}
	for _, call := range append([]Call{Lock}, e.world.scope.all()...) {
		if e.Exists(call.mutex()) && !e.world.scope.grouped() {
			continue
		}
		// As after the first lock there, at a distance.
		lock, _ := client.Lock(call.mutex())
		node, err := lock.Acquire(context.Background())
		if err != nil {
			e.world.Fatal(err)
		}
		node.Release()
	}
	return second.TierOf(client)
}

// A member is the one server that a process knows.
type member string

func (m member) Init([]string) error                    { return nil }
func (m member) Len() int                               { return 1 }
func (m member) Next() (server string, retryStart bool) { return string(m), false }
func (m member) Connected()                             {}

// library is a connection that the client library makes.
func (e *ensemble) library(to member, connect func(ctx context.Context, network, address string) (net.Conn, error)) *zk.Conn {
	dialer := func(network, address string, _ time.Duration) (net.Conn, error) {
		return connect(context.Background(), network, address)
	}
	conn, events, err := zk.Connect([]string{string(to)}, lease, zk.WithHostProvider(to), zk.WithDialer(dialer),
		zk.WithLogger(zkconn.Silent{}), zk.WithLogInfo(false))
	if err != nil {
		e.world.Fatal(err)
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	e.conns = append(e.conns, func() {
		conn.Close()
		for range events { // closed as the last act of the library
		}
	})
	return conn
}

// grouped reports whether requests may leave together, which wait for that only where the server has been far away.
func (s Scope) grouped() bool { return s.calls(Third) }

// distance is how long an answer takes before the steps begin: requests wait for others only where that is long.
const distance = 100 * time.Millisecond

func (e *ensemble) isMended(p *process) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	mended := e.mended == p
	if mended {
		e.mended = nil
	}
	return mended
}

func (e *ensemble) open() { e.opened.Store(true) }

func (e *ensemble) close() {
	for _, end := range e.conns {
		end()
	}
	e.Close()
}

// cut ends the connection of a process, until it is mended for one.
func (e *ensemble) cut(p *process) (heal func()) {
	e.Break(p)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.mended = p
	}
}

// write has a node made under a grant.
func (e *ensemble) write(x *span, grant second.Grant, check func() error) {
	guarded := grant.(interface {
		MultiIf(ctx context.Context, check func() error, ops ...any) ([]zk.MultiResponse, error)
	})
	guarded.MultiIf(context.Background(), check, &zk.CreateRequest{Path: writtenBy + x.name, Acl: zk.WorldACL(zk.PermAll)})
}

const writtenBy = "/written by "

// judge judges the writes of a transaction.
func (e *ensemble) judge(v zktest.View, changes []zktest.Change) {
	w := e.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, change := range changes {
		i := slices.IndexFunc(w.spans, func(x *span) bool { return change.Op == "create" && change.Path == writtenBy+x.name })
		if i < 0 {
			continue
		}
		queue, _ := zkqueue.Parse(v.Children(path))
		if x := w.spans[i]; len(queue) == 0 || e.token(v, queue[0].Node) != x.token {
			w.blameLocked("writes", "what %s wrote takes effect without the lock", x.name)
		} else {
			w.judgeWriteLocked(x)
		}
	}
}

func (e *ensemble) token(v zktest.View, node string) int64 {
	_, stat, _ := v.Get(path + "/" + node)
	return stat.Czxid
}

// hold has a frame wait for its step.
func (e *ensemble) hold(f *zktest.Frame) zktest.Action {
	p := e.world.named(strings.TrimSuffix(f.Member, port))
	switch open := e.opened.Load(); {
	case e.passes(p, f), !open && !e.world.scope.grouped():
		return zktest.Pass
	case !open:
		return zktest.Delay(distance)
	}
	what, to := f.Op+" "+e.place(p, f.Path), toStore
	if f.Dir == zktest.Reply {
		to = inOrder
		if f.Op != "event" {
			what = "answer to " + what
		}
	}
	if e.world.post(p, what, to) == lose {
		return zktest.Cut
	}
	return zktest.Pass
}

// passes reports whether the order of a frame does not matter. That of a delete of what has gone with its session may be another one each
// time, as both who asks for it and who queues again wait at random before.
func (e *ensemble) passes(p *process, f *zktest.Frame) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	same := *f
	same.Dir, same.Nth = 0, 0
	switch f.Op {
	case "connect":
		if f.Dir == zktest.Reply && f.Session != e.newest[p] {
			e.newest[p] = f.Session
			p.sessions.Add(1)
		}
		return true
	case "ping", "closeSession":
		return true
	case "delete":
		if f.Dir == zktest.Request && !e.Exists(f.Path) {
			e.passed[same] = true
		}
	}
	return e.passed[same]
}

// place is a path as it is in schedules: that of a node is its number among those of its process, which is the first to name it.
func (e *ensemble) place(p *process, path string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, name, ok := strings.Cut(path, "_c_")
	if !ok {
		return path
	}
	id := name[:len("01234567-89ab-4def-8123-456789abcdef")]
	if e.ids[id] == "" {
		e.count[p.name]++
		e.ids[id] = fmt.Sprintf("%s.%d", p.name[1:], e.count[p.name])
	}
	return e.ids[id]
}

// A znode is one at a path.
type znode struct {
	zkqueue.Contender
	permits int // that it is
}

// znodes are those at a path, those that are permits first.
func (e *ensemble) znodes(path string) (all []znode) {
	path, permits := strings.CutPrefix(path, permitsOf)
	if permits {
		leases := e.Children(path + "/leases")
		slices.SortFunc(leases, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
		for _, name := range leases {
			all = append(all, e.znode(path+"/leases", zkqueue.Contender{Node: name}, 1))
		}
		path += "/locks"
	}
	queue, _ := zkqueue.Parse(e.Children(path))
	for _, c := range queue {
		all = append(all, e.znode(path, c, 0))
	}
	return all
}

func (e *ensemble) znode(path string, c zkqueue.Contender, permits int) znode {
	data, stat, _ := e.Get(path + "/" + c.Node)
	c.Take(data, &stat)
	return znode{c, permits}
}

// Queue returns who is at a path.
func (e *ensemble) Queue(path string) (all []second.Contender) {
	for _, n := range e.znodes(path) {
		q := n.ForGate()
		q.ID = e.place(e.world.named(n.Label), n.Node)
		if q.Permits = n.permits; strings.HasPrefix(path, permitsOf) {
			q.Of = permitsThere
		}
		all = append(all, q)
	}
	return all
}

// Remove is not explored on ZooKeeper.
func (e *ensemble) Remove(string, int) { panic("nobody removes a node") }

// Expire ends the session of the process at a place, which learns it at once: else it would have lasted longer.
func (e *ensemble) Expire(path string, i int) {
	n := e.znodes(path)[i]
	p := e.world.named(n.Label)
	e.Break(p)
	synctest.Wait()
	e.Server.Expire(n.Session)
	e.settle(p, e.world.step, pass) // it connects
	if e.world.scope.Attached {     // and has to look
		synctest.Wait()
		e.world.judgeLook(p)
		synctest.Wait()
	}
}

// Break ends the connection of a process, and what is on its way there.
func (e *ensemble) Break(p *process) {
	e.Member(p.name + port).Cut()
	e.settle(p, e.world.step-1, lose)
}

// settle decides what becomes of the messages of a process up to those that came with a step.
func (e *ensemble) settle(p *process, step int, v verdict) {
	for _, m := range e.world.ordered() {
		if m.process == p && m.since <= step {
			e.world.settle(m, v)
		}
	}
}
