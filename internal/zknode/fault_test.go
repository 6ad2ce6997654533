package zknode_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The function strike calls do for the nth frame that the filter matches, and lets all other frames pass. The function struck returns that
// frame as text, or "" if there were fewer frames.
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

// eachFrame runs f for the first frame, the second frame and so on, each time with a new server. It stops when f reports that there was no
// such frame.
func eachFrame(t *testing.T, f func(t *testing.T, s *zktest.Server, nth int) (struck bool)) {
	t.Helper()
	for nth, more := 1, true; more; nth++ {
		more = false
		t.Run(fmt.Sprint(nth), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) { more = f(t, s, nth) })
		})
	}
}

// The function sent returns a filter for the frames of a session. The filter leaves out pings and handshakes.
func sent(session int64) func(*zktest.Frame) bool {
	return func(f *zktest.Frame) bool { return f.Session == session && f.Op != "ping" && f.Op != "connect" }
}

// One node ahead is deleted while the watch on another one fires and ends. The waiter must notice both, and watch that other node again.
func TestDepartureOfTheOneDoesNotHideThatTheOtherIsNoLongerWatched(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // lets the waiter run only when both events have arrived
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				var joined atomic.Int64
				dial := func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := s.DialContext(ctx, network, address)
					return joining{conn, &joined}, err
				}
				others, p := raw(t, s), start(t, s, zknode.WithDialContext(dial))
				put(t, others, 0, "/locks", path)
				put(t, others, zk.FlagEphemeral|zk.FlagSequence, path+"/_c_x-lock-", path+"/_c_x-lock-")
				r := p.queue(t.Context())
				stays, goes := fmt.Sprintf("%s/_c_x-lock-%010d", path, order[0]), fmt.Sprintf("%s/_c_x-lock-%010d", path, order[1])
				joined.Store(1)
				_, err := others.Multi(&zk.SetDataRequest{Path: stays, Version: -1}, &zk.DeleteRequest{Path: goes, Version: -1})
				wantErr(t, "the deletion", err, nil)
				synctest.Wait()
				remove(t, others, stays)
				r.granted(t).Release()
			})
		})
	}
}

// A joining connection delivers some reads together with the read that follows.
type joining struct {
	net.Conn
	next *atomic.Int64 // for how many reads it does so
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
