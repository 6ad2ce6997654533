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

// Whoever is third in line meets a fault in each of its frames, one in each run, and has the time to get over it. Then it
// hears at once of whatever concerns it.
func TestNoWatchIsLostWhereverTheConnectionFails(t *testing.T) {
	faults := map[string]zktest.Action{"cut": zktest.Cut, "throttled": zktest.Error(throttled)}
	for name, fault := range faults {
		for kind, opts := range map[string][]zklock.Option{"plain": nil, "bridged": {zklock.WithKazoo()}} {
			for _, order := range [][]int{{0, 1}, {1, 0}, {-1}, {-2}} {
				if kind == "plain" && order[0] == -2 {
					continue
				}
				for at, more := 1, true; more; at++ {
					t.Run(fmt.Sprintf("%s %s %v %d", kind, name, order, at), func(t *testing.T) {
						bubble(t, func(t *testing.T, s *zktest.Server) { more = hear(t, s, at, fault, order, opts...) })
					})
				}
			}
		}
	}
}

// hear has the nodes deleted that are given by their place in the queue, or from its end by a negative number. It reports
// whether the fault happened.
func hear(t *testing.T, s *zktest.Server, at int, fault zktest.Action, order []int, opts ...zklock.Option) bool {
	t.Helper()
	others, p := raw(t, s), start(t, s, opts...)
	put(t, others, 0, "/locks", path)
	put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_a-lock-", path+"/_c_b-lock-")
	var mu sync.Mutex
	frames := 0
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session != p.session || f.Op == zktest.OpPing || f.Op == zktest.OpConnect {
			return zktest.Pass
		}
		mu.Lock()
		defer mu.Unlock()
		if frames++; frames == at && (fault != zktest.Error(throttled) || f.Stage == zktest.Request) {
			return fault
		}
		return zktest.Pass
	})
	r := p.queue(t.Context())
	time.Sleep(timeout / 10)
	mu.Lock()
	struck := frames >= at
	frames = at // none from now on
	mu.Unlock()
	time.Sleep(timeout/2 - timeout/10 - 100*time.Millisecond) // no heartbeat and no look at the queue is near
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
	return struck
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
