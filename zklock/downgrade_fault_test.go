package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// An event is what happens while a frame of somebody passes who shares a lock.
type event func(*stage) zktest.Action

// A stage is a writer that shares its node, a reader right behind it, and another writer.
type stage struct {
	t       *testing.T
	server  *zktest.Server
	writer  process
	node    *zklock.Node
	reader  *request
	another *request
	again   *request // the requeue of the writer, nil if there is none
	conn    *zk.Conn // an operator's
}

func (g *stage) operator(delete func(name string) bool) {
	for _, name := range g.server.Children(path) {
		if delete(name) {
			g.conn.Delete(path+"/"+name, -1)
		}
	}
}

func (g *stage) own(name string) bool {
	return strings.HasPrefix(path+"/"+name, g.node.Path()[:len(path)+39])
}

func (g *stage) release() {
	began := time.Now()
	err := g.node.Release()
	if err != nil && !errors.Is(err, zklock.ErrLost) && !errors.Is(err, zklock.ErrReleased) {
		g.t.Errorf("Release: %v", err)
	}
	if took := time.Since(began); took > timeout/3 {
		g.t.Errorf("Release took %v", took)
	}
}

func (g *stage) requeue() {
	if g.again == nil {
		r := &request{done: make(chan struct{})}
		g.again = r
		go func() {
			defer close(r.done)
			r.node, r.err = g.node.Requeue(g.t.Context())
		}()
	}
}

var events = map[string]event{
	"cut":   func(*stage) zktest.Action { return zktest.Cut },
	"slow":  func(*stage) zktest.Action { return zktest.Delay(3 * time.Second) },
	"muted": func(g *stage) zktest.Action { return muteFor(timeout-time.Second)(g.server, g.writer.session) },
	"muted to the end": func(g *stage) zktest.Action {
		return muteFor(2*timeout)(g.server, g.writer.session)
	},
	"expired": func(g *stage) zktest.Action {
		g.server.Expire(g.writer.session)
		return zktest.Pass
	},
	"released": func(g *stage) zktest.Action {
		go g.release()
		return zktest.Delay(time.Millisecond)
	},
	"released, cut": func(g *stage) zktest.Action {
		go g.release()
		return zktest.Cut
	},
	"released, slow": func(g *stage) zktest.Action {
		go g.release()
		return zktest.Delay(3 * time.Second)
	},
	"requeued": func(g *stage) zktest.Action {
		g.requeue()
		return zktest.Delay(time.Millisecond)
	},
	"requeued, cut": func(g *stage) zktest.Action {
		g.requeue()
		return zktest.Cut
	},
	"its node deleted": func(g *stage) zktest.Action {
		g.operator(g.own)
		return zktest.Pass
	},
	"its node deleted, cut": func(g *stage) zktest.Action {
		g.operator(g.own)
		return zktest.Cut
	},
	"the reader deleted": func(g *stage) zktest.Action {
		g.operator(func(name string) bool { return !g.own(name) && strings.Contains(name, "__READ__") })
		return zktest.Pass
	},
}

// Each frame of one who shares its node meets each event, one in each run.
func TestShareIsDoneOrNotWhateverHappens(t *testing.T) { // I1 I5
	for name, event := range events {
		for kind, opts := range map[string][]zklock.Option{"plain": nil, "bridged": {zklock.WithKazoo()}} {
			for at, more := 1, true; more; at++ {
				t.Run(fmt.Sprintf("%s %s %d", kind, name, at), func(t *testing.T) {
					bubble(t, func(t *testing.T, s *zktest.Server) { more = shareAmid(t, s, at, event, opts...) })
				})
			}
		}
	}
}

// shareAmid reports whether the event happened.
func shareAmid(t *testing.T, s *zktest.Server, at int, happen event, opts ...zklock.Option) bool {
	t.Helper()
	g := &stage{t: t, server: s, writer: start(t, s, opts...).writing(), conn: raw(t, s)}
	g.node = g.writer.acquire(t)
	g.reader = start(t, s).reading().queue(t.Context())
	g.another = start(t, s).writing().queue(t.Context())
	var mu sync.Mutex
	frames, over := 0, false
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session != g.writer.session || f.Op == zktest.OpPing || f.Op == zktest.OpConnect {
			return zktest.Pass
		}
		mu.Lock()
		if !over {
			frames++
		}
		hit := frames == at && !over
		mu.Unlock()
		if hit {
			return happen(g)
		}
		return zktest.Pass
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	d := sharing(ctx, g.node)
	began := time.Now()
	d.await(t)
	mu.Lock()
	over = true
	mu.Unlock()
	if took := time.Since(began); took > 2*timeout {
		t.Errorf("Share took %v", took)
	}
	held := g.node.Err() == nil
	if held && (d.err == nil) != g.node.Shared() {
		t.Errorf("Share: %v; shared: %t", d.err, g.node.Shared())
	}
	if held && d.err != nil && !errors.Is(d.err, context.DeadlineExceeded) {
		t.Errorf("Share: %v", d.err)
	}
	time.Sleep(timeout / 2)
	if g.node.Err() == nil && !s.Exists(g.node.Path()) {
		t.Errorf("%s is held, but not there", g.node.Path())
	}
	if in := !g.reader.waiting(); in && g.node.Err() == nil && !g.node.Shared() {
		t.Error("a reader beside a writer")
	} else if in && !g.another.waiting() {
		t.Error("a writer beside a reader")
	} else if !g.another.waiting() && g.node.Err() == nil {
		t.Error("two writers")
	}

	g.release()
	for left := []*request{g.reader, g.another, g.again}; len(left) > 0; {
		time.Sleep(5 * timeout)
		var waiting []*request
		for _, r := range left {
			switch {
			case r == nil:
			case r.waiting():
				waiting = append(waiting, r)
			default:
				r.granted(t).Release()
			}
		}
		if len(waiting) == len(left) {
			t.Fatalf("%d wait for nobody: %q", len(left), s.Children(path))
		}
		left = waiting
	}
	if wantEmpty(t, s); g.writer.Reaping() != 0 || g.writer.Listeners() != 0 {
		t.Errorf("left: %d nodes to reap, %d listeners", g.writer.Reaping(), g.writer.Listeners())
	}
	mu.Lock()
	defer mu.Unlock()
	return frames >= at
}

// A server that refuses the transaction for a while says that it did not execute it.
func TestShareIsTriedAgainUntilTheServerTakesIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).writing().acquire(t)
		r := start(t, s).reading().queue(t.Context())
		refused := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpMulti && f.Stage == zktest.Request && !heartbeatOf(f, n) && refused < 5 {
				refused++
				return zktest.Error(throttled)
			}
			return zktest.Pass
		})
		wantErr(t, "Share", n.Share(t.Context()), nil)
		r.granted(t)
	})
}

// heartbeatOf reports whether a frame is the heartbeat's about n, which begins with its own node.
func heartbeatOf(f *zktest.Frame, n *zklock.Node) bool { return f.Path == n.Path() }

// The lease of a process does not depend on what becomes of one transaction.
func TestTheHeartbeatGoesOnWhileSomebodyShares(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s).writing()
		n := p.acquire(t)
		start(t, s).reading().queue(t.Context())
		sharing := true // and nobody learns whether it has
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if !sharing || f.Session != p.session {
				return zktest.Pass
			}
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request {
				return zktest.Error(throttled)
			}
			return zktest.Pass
		})
		first := true
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			if first && len(changes) > 1 {
				first = false
				go s.Cut(p.session)
			}
		})
		d := submit(func() (*zklock.Node, error) {
			sharing = false
			err := n.Share(t.Context())
			return n, err
		})
		d.await(t)
		time.Sleep(3 * timeout)
		if err := n.Err(); err != nil {
			t.Errorf("lost: %v", err)
		}
	})
}
