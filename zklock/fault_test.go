package zklock_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// strike has something else happen to the nth such frame, and nothing before or after. It tells which one that was, "" if
// there were fewer.
func strike(s *zktest.Server, nth int, such func(*zktest.Frame) bool, do func(*zktest.Frame) zktest.Action) (struck func() string) {
	var mu sync.Mutex // guards the fields below
	frames, at := 0, ""
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		mu.Lock()
		hit := false
		if at == "" && such(f) {
			frames++
			hit = frames == nth
		}
		if hit {
			at = fmt.Sprintf("%v %v %s", f.Op, f.Dir, f.Path)
		}
		mu.Unlock()
		if hit {
			return do(f)
		}
		return zktest.Pass
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
}

// eachFrame runs f for the first frame, the second and so on, each with a server of its own, until it reports that there was
// no such frame.
func eachFrame(t *testing.T, f func(t *testing.T, s *zktest.Server, nth int) (struck bool)) {
	t.Helper()
	for nth, more := 1, true; more; nth++ {
		more = false
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) { more = f(t, s, nth) })
		})
	}
}

// sent tells the frames of a session but for pings and handshakes.
func sent(session int64) func(*zktest.Frame) bool {
	return func(f *zktest.Frame) bool {
		return f.Session == session && f.Op != "ping" && f.Op != "connect"
	}
}

// Each frame of a life with one turn of waiting and one requeue meets a fault. What one znode meets is in the matrix of
// internal/sim.
func TestI5NoOrphanOfAPairWhereverTheConnectionFails(t *testing.T) {
	for name, fault := range map[string]func(s *zktest.Server, session int64) zktest.Action{
		"cut":     func(*zktest.Server, int64) zktest.Action { return zktest.Cut },
		"expired": func(s *zktest.Server, session int64) zktest.Action { s.Expire(session); return zktest.Pass },
	} {
		t.Run(name, func(t *testing.T) {
			eachFrame(t, func(t *testing.T, s *zktest.Server, nth int) bool {
				other, p := start(t, s), bridge(t, s)
				held := other.acquire(t)
				others := sent(other.session)
				struck := strike(s, nth, func(f *zktest.Frame) bool { return sent(f.Session)(f) && !others(f) },
					func(f *zktest.Frame) zktest.Action { return fault(s, f.Session) })
				r := p.queue(t.Context())
				held.Release()
				r.await(t)
				n := r.granted(t)
				wantErr(t, "Err of the grant", n.Err(), nil)
				if next, err := n.Requeue(within(t, time.Millisecond)); err == nil {
					next.Release()
				} else {
					wantErr(t, "Requeue", err, context.DeadlineExceeded)
				}
				time.Sleep(5 * timeout)
				if wantEmpty(t, s); p.Reaping() != 0 {
					t.Errorf("after %s: still reaping %d", struck(), p.Reaping())
				}
				return struck() != ""
			})
		})
	}
}

// A mishap befalls a process. Over gives it the time to get over it, until no heartbeat and no look at the queue is near, and
// reports whether it happened.
type mishap func(p process) (over func() bool)

// eachMishap runs f with each fault in each frame of a client, plain and bridged.
func eachMishap(t *testing.T, f func(t *testing.T, s *zktest.Server, befall mishap, opts ...zklock.Option) (happened bool)) {
	t.Helper()
	for fault, action := range map[string]zktest.Action{"cut": zktest.Cut, "throttled": zktest.Throttled} {
		for kind, opts := range kinds {
			t.Run(kind+" "+fault, func(t *testing.T) {
				eachFrame(t, func(t *testing.T, s *zktest.Server, nth int) bool {
					return f(t, s, func(p process) (over func() bool) {
						struck := strike(s, nth, sent(p.session), func(f *zktest.Frame) zktest.Action {
							if fault == "throttled" && f.Dir != zktest.Request {
								return zktest.Pass
							}
							return action
						})
						return func() bool {
							time.Sleep(timeout / 10)
							s.Intercept(nil)
							time.Sleep(timeout/2 - timeout/10 - 100*time.Millisecond)
							return struck() != ""
						}
					}, opts...)
				})
			})
		}
	}
}

// Whoever is third in line meets a fault in each of its frames, one in each run, and has the time to get over it. Then it
// hears at once of whatever concerns it.
func TestNoWatchIsLostWhereverTheConnectionFails(t *testing.T) {
	for _, order := range [][]int{{0, 1}, {1, 0}, {-1}, {-2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			eachMishap(t, func(t *testing.T, s *zktest.Server, befall mishap, opts ...zklock.Option) bool {
				return (order[0] != -2 || opts != nil) && hear(t, s, befall, order, opts...) // a plain node is one znode
			})
		})
	}
}

// hear has the nodes deleted that are given by their place in the queue, or from its end by a negative number.
func hear(t *testing.T, s *zktest.Server, befall mishap, order []int, opts ...zklock.Option) (happened bool) {
	t.Helper()
	others, p := raw(t, s), start(t, s, opts...)
	put(t, others, 0, "/locks", path)
	put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_a-lock-", path+"/_c_b-lock-")
	over := befall(p)
	r := p.queue(t.Context())
	happened = over()
	queue := s.Children(path)
	slices.SortFunc(queue, func(a, b string) int { return int(a[len(a)-1]) - int(b[len(b)-1]) })
	for _, i := range order {
		synctest.Wait()
		remove(t, others, path+"/"+queue[(i+len(queue))%len(queue)])
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
				remove(t, others, stays)
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
