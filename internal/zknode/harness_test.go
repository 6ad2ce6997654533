package zknode_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/faultproxy"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/internal/test/zkconn"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const tierTimeout = 5 * time.Second // the session timeout in the tests of tiertest

// curators lists promises that Curator's layout of a semaphore makes impossible: the name of the test, and the reason.
var curators = map[string]string{
	"permits-one-write": "with Curator's layout of nodes, a request first queues for a lock, and then takes the permits",
	"permits-renumber":  "the number stays at the path until the server removes the path",
}

// A cord carries the connections between one process and the servers.
type cord struct {
	ends   []cordEnd
	addrs  []string
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	writes *atomic.Int64
	hook   atomic.Pointer[func() bool]

	borrowed bool // the connection was made by the program
	// The test saves values. A save begins with a check of the holder's node, as some heartbeats do, and a frame does not show the rest. In
	// these tests all such frames count as saves, and in other tests as heartbeats.
	saves bool
}

// A cordEnd is a *zktest.Member or a *faultproxy.Proxy.
type cordEnd interface {
	Cut()
	Refuse()
	Accept()
	Freeze()
	Unfreeze()
}

// cord.see decides what happens to a frame.
func (w *cord) see(f *zktest.Frame) zktest.Action {
	saves := w.saves && f.First == "check" && strings.Contains(f.Path, "/_c_")
	if heartbeat(f) && !saves {
		return zktest.Pass
	}
	if f.Dir == zktest.Request {
		switch f.Op {
		case "create", "create2", "delete", "setData", "multi":
			w.writes.Add(1)
		}
		return zktest.Pass
	}
	if hook := w.hook.Load(); hook != nil && (*hook)() {
		return zktest.Cut
	}
	return zktest.Pass
}

// The method process starts a process that connects through the cord.
func (w *cord) process(tb testing.TB, lease time.Duration) *tiertest.Process {
	tb.Helper()
	ctx := need.Within(tb, time.Minute)
	w.saves = strings.Contains(tb.Name(), "/value-")
	// The client library pauses for a second at the end of its list of servers, so the list is long.
	servers := strings.Join(slices.Concat(slices.Repeat([][]string{w.addrs}, 12)...), ",")
	c, hangUp := w.connect(ctx, tb, servers, lease)
	each := func(do func(cordEnd)) {
		for _, end := range w.ends {
			do(end)
		}
	}
	p := &tiertest.Process{
		Tier: zknode.Tier(c),
		Cut: func() (heal func()) {
			each(cordEnd.Freeze)
			return func() {
				each(cordEnd.Cut)
				each(cordEnd.Unfreeze)
			}
		},
		Kill: func() {
			each(cordEnd.Refuse)
			each(cordEnd.Cut)
			c.Close()
			hangUp()
		},
		Messages: func(hook func() bool) {
			if hook == nil {
				w.hook.Store(nil)
				return
			}
			w.hook.Store(&hook)
		},
	}
	if !w.borrowed {
		p.Blind = func(g second.Grant) {
			if n, ok := g.(interface{ StopWatchdog() }); ok {
				n.StopWatchdog()
			}
		}
		p.Sleep = func(_ second.Grant, d time.Duration) { c.Suspend(d) }
	}
	return p
}

// connect returns a client that connects through the cord. hangUp ends the connection if the client itself does not close it.
func (w *cord) connect(ctx context.Context, tb testing.TB, servers string, lease time.Duration) (c *zknode.Client, hangUp func()) {
	tb.Helper()
	if !w.borrowed {
		return need.Get(zknode.Dial(ctx, servers, zknode.WithSessionTimeout(lease), zknode.WithDialContext(w.dial)))(tb), func() {}
	}
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return w.dial(ctx, network, address)
	}
	conn := zkconn.Start(tb, strings.Split(servers, ","), lease, dial)
	return need.Get(zknode.Attach(conn, zknode.WithSessionTimeout(lease)))(tb), conn.Close
}

// A look is a connection with which a test reads queues, as an operator would.
type look struct{ *zk.Conn }

// The method queue returns the queue in order. It first makes a write that changes nothing, because it must not read old data. A sync would
// not be enough: a deposed leader that does not know of its deposition answers a sync from old data.
func (l look) queue(path string) ([]string, error) {
	server := l.Server()
	if _, err := l.Multi(&zk.CheckVersionRequest{Path: path, Version: -1}); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	names, _, err := l.Children(path)
	if l.Server() != server { // the server that answered last may lag behind
		return l.queue(path)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a[len(a)-10:], b[len(b)-10:]) })
	return names, err
}

func (l look) left(path string) int {
	names, err := l.queue(path)
	if err != nil {
		return -1
	}
	return len(names)
}

// leftPermits counts the contenders and the permits that are left at a path. It reads the queue before the permits. A contender that
// exchanges its place for permits between the two reads is counted twice, which is better than never.
func (l look) leftPermits(path string) int {
	waiting := l.left(path + "/locks")
	taken := l.left(path + "/leases")
	if waiting < 0 || taken < 0 {
		return -1
	}
	return waiting + taken
}

func (l look) remove(tb testing.TB, path string, i int) {
	tb.Helper()
	names, err := l.queue(path)
	if err == nil && len(names) <= i {
		err = errors.New("no server answers")
	}
	if err == nil {
		err = l.Delete(path+"/"+names[i], -1)
	}
	wantErr(tb, "the removal", err, nil)
}

// modelHarness is the harness for a server in this process. A fail-over or a restart is simulated as clients see it: all connections break,
// and for a moment no server is available.
func modelHarness(t *testing.T, s *zktest.Server, borrowed bool, unpromised map[string]string) tiertest.Harness {
	var (
		writes atomic.Int64
		cords  sync.Map // by their address
		n      int
	)
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if w, ok := cords.Load(f.Member); ok {
			return w.(*cord).see(f)
		}
		return zktest.Pass
	})
	operator := look{zkconn.Start(t, []string{addr, addr}, timeout, s.DialTimeout)}
	restart := func() {
		cords.Range(func(addr, _ any) bool { s.Member(addr.(string)).Refuse(); return true })
		s.CutAll()
		time.Sleep(tierTimeout / 20) // in virtual time
		cords.Range(func(addr, _ any) bool { s.Member(addr.(string)).Accept(); return true })
	}
	return tiertest.Harness{
		Lease:   tierTimeout,
		Virtual: true,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			n++
			addr := fmt.Sprintf("127.0.1.%d:2181", n)
			w := &cord{ends: []cordEnd{s.Member(addr)}, addrs: []string{addr}, dial: s.DialContext, writes: &writes, borrowed: borrowed}
			cords.Store(addr, w)
			return w.process(tb, lease)
		},
		Left:        operator.left,
		LeftPermits: operator.leftPermits,
		Writes:      writes.Load,
		Remove:      func(path string, i int) { operator.remove(t, path, i) },
		Freeze:      func() (thaw func()) { s.Freeze(); return s.Unfreeze },
		Failover:    s.CutAll,
		Restart:     restart,
		Unpromised:  unpromised,
	}
}

// A mutableProxy can be frozen, like a member of the server in this process.
type mutableProxy struct{ *faultproxy.Proxy }

func (p mutableProxy) Freeze()   { p.Mute(zktest.Request); p.Mute(zktest.Reply) }
func (p mutableProxy) Unfreeze() { p.Unmute(zktest.Request); p.Unmute(zktest.Reply) }

// serverHarness is the harness for a real ensemble. Each process has proxies of its own.
func serverHarness(t *testing.T, e *zkserver.Ensemble) tiertest.Harness {
	var writes atomic.Int64
	check := func(err error) { wantErr(t, "the harness", err, nil) }
	ctx := t.Context()
	mend(t, e)
	operator := look{zkconn.Start(t, e.Addrs(), 10*time.Second, nil)}
	return tiertest.Harness{
		Lease: tierTimeout,
		Gate:  true,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			w := &cord{dial: new(net.Dialer).DialContext, writes: &writes}
			for _, addr := range e.Addrs() {
				p := need.Get(faultproxy.Start(addr))(tb)
				tb.Cleanup(p.Close)
				p.Intercept(w.see)
				w.ends = append(w.ends, mutableProxy{p})
				w.addrs = append(w.addrs, p.Addr())
			}
			return w.process(tb, lease)
		},
		Left:        operator.left,
		LeftPermits: operator.leftPermits,
		Writes:      writes.Load,
		Remove:      func(path string, i int) { operator.remove(t, path, i) },
		Freeze: func() (thaw func()) {
			check(e.Pause())
			return func() {
				check(e.Resume())
				mend(t, e)
			}
		},
		Failover:   func() { check(e.Failover(ctx)) },
		Restart:    func() { check(e.Restart(ctx)) },
		Unpromised: curators,
	}
}

var mending sync.Mutex // only one goroutine may restart the ensemble at a time

// mend restarts an ensemble that commits nothing any more. ZooKeeper 3.8 may get into this state when all servers were paused and resumed:
// the followers return to a leader whose proposals are never committed.
func mend(t *testing.T, e *zkserver.Ensemble) {
	mending.Lock()
	defer mending.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, events, err := zkconn.Open(ctx, e.Addrs(), 10*time.Second, nil) // the server has to commit the new session
	if err != nil {
		t.Logf("the ensemble is started again: %v", err)
		need.OK(t, e.Restart(t.Context()))
		return
	}
	conn.Close()
	for range events {
	}
}

// promisesFile is the file with the table that docs/promises.md contains.
const promisesFile = "../../docs/promises/zookeeper.md"

// inBubble tests each promise in virtual time. Each test has its own server.
func inBubble(borrowed bool, unpromised map[string]string) tiertest.With {
	return func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		synctest.Test(t, func(t *testing.T) { test(t, modelHarness(t, zktest.Start(t), borrowed, unpromised)) })
	}
}

func TestTier(t *testing.T) {
	tiertest.Run(t, inBubble(false, curators)).Record(t, "ZooKeeper", promisesFile)
}

func TestTierOnARealServer(t *testing.T) {
	e := childtest.StartEnsemble(t, zkserver.StartEnsemble, 3, zkserver.Config{TickTime: 500 * time.Millisecond, NoSync: true})
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, serverHarness(t, e))
	}).Record(t, "ZooKeeper", promisesFile)
}
