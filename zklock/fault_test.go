package zklock_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A fault is what happens to a session when a certain frame of it passes.
type fault func(s *zktest.Server, session int64) zktest.Action

func muteFor(d time.Duration) fault {
	return func(s *zktest.Server, session int64) zktest.Action {
		for _, direction := range []zktest.Direction{zktest.Request, zktest.Reply} {
			s.Mute(session, direction)
			time.AfterFunc(d, func() { s.Unmute(session, direction) })
		}
		return zktest.Pass
	}
}

// Each frame of a life with one turn of waiting and one requeue meets each fault, one in each run.
func TestI5NoOrphanWhereverTheConnectionFails(t *testing.T) {
	for name, fault := range map[string]fault{
		"cut":              func(*zktest.Server, int64) zktest.Action { return zktest.Cut },
		"slow":             func(*zktest.Server, int64) zktest.Action { return zktest.Delay(3 * time.Second) },
		"muted":            muteFor(timeout - time.Second),
		"muted to the end": muteFor(2 * timeout),
		"expired": func(s *zktest.Server, session int64) zktest.Action {
			s.Expire(session)
			return zktest.Pass
		},
	} {
		for kind, opts := range kinds(name) {
			for at, more := 1, true; more; at++ {
				t.Run(fmt.Sprintf("%s %s %d", kind, name, at), func(t *testing.T) {
					bubble(t, func(t *testing.T, s *zktest.Server) { more = live(t, s, at, fault, opts...) })
				})
			}
		}
	}
}

// kinds are the options of nodes that are to meet a fault. What delays an answer is nothing else to a pair of znodes.
func kinds(fault string) map[string][]zklock.Option {
	all := map[string][]zklock.Option{"plain": nil}
	if !strings.Contains(fault, "slow") && !strings.Contains(fault, "muted") {
		all["bridged"] = []zklock.Option{zklock.WithKazoo()}
	}
	return all
}

// live reports whether the fault happened.
func live(t *testing.T, s *zktest.Server, at int, fault fault, opts ...zklock.Option) bool {
	t.Helper()
	other, p := start(t, s), start(t, s, opts...)
	held := other.acquire(t)
	var mu sync.Mutex
	frames := 0
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session == other.session || f.Op == "ping" || f.Op == "connect" {
			return zktest.Pass
		}
		mu.Lock()
		frames++
		hit := frames == at
		mu.Unlock()
		if hit {
			return fault(s, f.Session)
		}
		return zktest.Pass
	})
	r := p.queue(t.Context())
	held.Release()
	r.await(t)
	n := r.granted(t)
	if err := n.Err(); err != nil {
		t.Errorf("granted: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if next, err := n.Requeue(ctx); err == nil {
		next.Release()
	} else {
		wantErr(t, "Requeue", err, context.DeadlineExceeded)
	}
	time.Sleep(5 * timeout)
	synctest.Wait()
	if wantEmpty(t, s); p.Reaping() != 0 {
		t.Errorf("still reaping %d", p.Reaping())
	}
	mu.Lock()
	defer mu.Unlock()
	return frames >= at
}

// A mishap is a fault that the nth frame of a client meets.
type mishap struct {
	nth   int
	fault zktest.Action
}

// everyMishap runs f with each fault in each frame of a client, plain and bridged, in a server of its own, until f reports that
// there was no such frame.
func everyMishap(t *testing.T, name string, f func(t *testing.T, s *zktest.Server, m mishap, opts ...zklock.Option) (happened bool)) {
	for fault, action := range map[string]zktest.Action{"cut": zktest.Cut, "throttled": zktest.Throttled} {
		for kind, opts := range map[string][]zklock.Option{"plain": nil, "bridged": {zklock.WithKazoo()}} {
			for nth, more := 1, true; more; nth++ {
				t.Run(fmt.Sprintf("%s %s%s %d", kind, fault, name, nth), func(t *testing.T) {
					bubble(t, func(t *testing.T, s *zktest.Server) { more = f(t, s, mishap{nth, action}, opts...) })
				})
			}
		}
	}
}

// befall lets p meet the mishap. Over gives it the time to get over it, until no heartbeat and no look at the queue is near,
// and reports whether it happened.
func (m mishap) befall(s *zktest.Server, p process) (over func() bool) {
	var mu sync.Mutex
	frames := 0
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session != p.session || f.Op == "ping" || f.Op == "connect" {
			return zktest.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		if frames++; frames == m.nth && (m.fault != zktest.Throttled || f.Dir == zktest.Request) {
			return m.fault
		}
		return zktest.Pass
	})
	return func() bool {
		time.Sleep(timeout / 10)
		mu.Lock()
		happened := frames >= m.nth
		frames = m.nth // none from now on
		mu.Unlock()
		time.Sleep(timeout/2 - timeout/10 - 100*time.Millisecond)
		return happened
	}
}

// Whoever is third in line meets a fault in each of its frames, one in each run, and has the time to get over it. Then it
// hears at once of whatever concerns it.
func TestNoWatchIsLostWhereverTheConnectionFails(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}, {-1}, {-2}} {
		everyMishap(t, fmt.Sprint(" ", order), func(t *testing.T, s *zktest.Server, m mishap, opts ...zklock.Option) bool {
			return (order[0] != -2 || opts != nil) && hear(t, s, m, order, opts...) // a plain node is one znode
		})
	}
}

// hear has the nodes deleted that are given by their place in the queue, or from its end by a negative number.
func hear(t *testing.T, s *zktest.Server, m mishap, order []int, opts ...zklock.Option) (happened bool) {
	t.Helper()
	others, p := raw(t, s), start(t, s, opts...)
	put(t, others, 0, "/locks", path)
	put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_a-lock-", path+"/_c_b-lock-")
	over := m.befall(s, p)
	r := p.queue(t.Context())
	happened = over()
	queue := s.Children(path)
	slices.SortFunc(queue, func(a, b string) int { return int(a[len(a)-1]) - int(b[len(b)-1]) })
	for _, i := range order {
		synctest.Wait()
		if err := others.Delete(path+"/"+queue[(i+len(queue))%len(queue)], -1); err != nil {
			t.Fatal(err)
		}
	}
	if order[0] >= 0 {
		r.granted(t).Release()
	} else {
		time.Sleep(50 * time.Millisecond)
		if now := s.Children(path); len(now) != len(queue) || slices.Contains(now, queue[len(queue)-1]) {
			t.Errorf("the queue was %q and is %q; want a new node at the tail", queue, now)
		}
	}
	return happened
}

// The watch on the other one is used up at the same moment.
func TestDepartureOfTheOneDoesNotHideThatTheOtherIsNoLongerWatched(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the waiter runs when both events have come
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				var joined atomic.Int64
				dial := func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := s.DialContext(ctx, network, address)
					return joining{conn, &joined}, err
				}
				others, p := raw(t, s), start(t, s, zklock.WithDialContext(dial))
				put(t, others, 0, "/locks", path)
				put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_x-lock-", path+"/_c_x-lock-")
				r := p.queue(t.Context())
				stays, goes := fmt.Sprintf("%s/_c_x-lock-%010d", path, order[0]), fmt.Sprintf("%s/_c_x-lock-%010d", path, order[1])
				joined.Store(1)
				if _, err := others.Multi(&zk.SetDataRequest{Path: stays, Version: -1}, &zk.DeleteRequest{Path: goes, Version: -1}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := others.Delete(stays, -1); err != nil {
					t.Fatal(err)
				}
				r.granted(t).Release()
			})
		})
	}
}

// A joining connection brings what comes next together with what comes right behind.
type joining struct {
	net.Conn
	next *atomic.Int64 // how often
}

func (c joining) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for err == nil && c.next.Add(-1) >= 0 {
		var more int
		more, err = c.Conn.Read(p[n:])
		n += more
	}
	return n, err
}

// Several acquisitions of one client share the watches. One of its frames meets a fault.
func TestThoseOfOneClientHearOfEachOtherWhereverTheConnectionFails(t *testing.T) {
	everyMishap(t, "", share)
}

func share(t *testing.T, s *zktest.Server, m mishap, opts ...zklock.Option) (happened bool) {
	t.Helper()
	others, p := raw(t, s), start(t, s, opts...)
	put(t, others, 0, "/locks", path)
	put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_a-lock-")
	foreign := path + "/" + s.Children(path)[0]
	over := m.befall(s, p)
	var waiters []*request
	for range 4 {
		r := &request{done: make(chan struct{})}
		waiters = append(waiters, r)
		go func() {
			defer close(r.done)
			r.node, r.err = p.lock.Acquire(t.Context())
		}()
	}
	happened = over()
	if err := others.Delete(foreign, -1); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		synctest.Wait()
		var granted []*zklock.Node
		for i, r := range waiters {
			select {
			case <-r.done:
				if r.err != nil {
					t.Fatal(r.err)
				}
				granted = append(granted, r.node)
				waiters[i] = &request{done: make(chan struct{})}
			default:
			}
		}
		if len(granted) != 1 {
			t.Fatalf("%d granted at a time", len(granted))
		}
		granted[0].Release()
	}
	return happened
}

// on meets the first frame of the kind with action, and lets all others pass.
func on(s *zktest.Server, op string, stage zktest.Direction, action zktest.Action) {
	var once sync.Once
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		fate := zktest.Pass
		if f.Op == op && f.Dir == stage {
			once.Do(func() { fate = action })
		}
		return fate
	})
}
