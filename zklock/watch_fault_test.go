package zklock_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"slices"
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
