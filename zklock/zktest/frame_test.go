package zktest_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestDroppedFrameIsNeverAnswered(t *testing.T) {
	for dir, applied := range map[zktest.Direction]bool{zktest.Request: false, zktest.Reply: true} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, timeout, addr)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == dir && f.Op == "create" {
					return zktest.Drop
				}
				return zktest.Pass
			})
			answered := creating(conn, "/1")
			time.Sleep(time.Hour)
			synctest.Wait()
			need.Equal(t, fmt.Sprintf("%v dropped: applied", dir), s.Exists("/1"), applied)
			need.Equal(t, "answers", len(answered), 0)
			_, _, err := conn.Get("/")
			locktest.WantErr(t, "a later request", err, nil)
			s.CutAll()
			locktest.WantErr(t, "after the cut", <-answered, zk.ErrConnectionClosed)
		})
	}
}

func TestDroppedRequestsDoNotProlongTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		connect(t, s, 9*time.Second, addr)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "ping" && f.Dir == zktest.Request {
				return zktest.Drop
			}
			return zktest.Pass
		})
		// When the client has waited for an answer for 6 s, it reconnects at once and waits again.
		time.Sleep(9*time.Second - 1)
		need.Len(t, "sessions", s.Sessions(), 1)
		s.Intercept(func(f *zktest.Frame) zktest.Action { return zktest.Drop })
		time.Sleep(9 * time.Second)
		need.Empty(t, "sessions that live on", s.Sessions())
	})
}

func TestFramesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		a, b := connect(t, s, timeout, addr), connect(t, s, timeout, addr)
		var seen []zktest.Frame
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			seen = append(seen, *f)
			return zktest.Pass
		})
		create(t, a, "/a", 0)
		synctest.Wait()
		create(t, b, "/b", 0)
		synctest.Wait()
		want := zktest.Frame{
			Dir: zktest.Reply, Op: "create", Path: "/b", Session: b.SessionID(), Member: addr, Nth: 2, NthOfSession: 1,
		}
		need.Len(t, "frames", seen, 4)
		need.Equal(t, "the last one", seen[len(seen)-1], want)
	})
}

func TestReplyBeforeACutArrives(t *testing.T) {
	for range 20 { // several rounds, because one might succeed by luck
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, timeout, addr)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Reply && f.Op == "exists" && f.Nth == 2 {
					return zktest.Cut
				}
				return zktest.Pass
			})
			exists := func() error { _, _, err := conn.Exists("/"); return err }
			first := make(chan error, 2)
			for range 2 {
				go func() { first <- exists() }()
			}
			a, b := <-first, <-first
			need.That(t, fmt.Sprintf("answers: %v and %v, want one and a cut", a, b), (a == nil) != (b == nil))
		})
	}
}

const oneWay = 10 * time.Millisecond

// distant runs f with a server whose messages take one latency in each direction.
func distant(t *testing.T, f func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	bubble(t, f, zktest.Config{Latency: oneWay})
}

// took checks how long ago start was.
func took(t *testing.T, what string, start time.Time, want time.Duration) {
	t.Helper()
	need.Equal(t, what+": after", time.Since(start), want)
}

func TestHandshakeAndRequestsTakeARoundTripEachAndTheirDelay(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		start := time.Now()
		conn := connect(t, s, timeout, addr)
		took(t, "handshake", start, 2*oneWay)
		start = time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, _, err := conn.Exists("/")
				locktest.WantErr(t, "Exists", err, nil)
				took(t, "one of several that were sent together", start, 2*oneWay)
			})
		}
		all.Wait()
		s.Intercept(func(*zktest.Frame) zktest.Action { return zktest.Delay(time.Millisecond) })
		start = time.Now()
		_, _, err := conn.Get("/")
		need.OK(t, err)
		took(t, "a request that is delayed twice", start, 2*oneWay+2*time.Millisecond)
	})
}

// A change takes effect after half a round trip, and watchers learn of it half a round trip later. A client that watches the node it
// changes gets the event just before its answer.
func TestEventsTravelFromTheMomentOfTheChange(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		near, far := connect(t, s, timeout, addr), connect(t, s, timeout, addr2)
		create(t, near, "/n", 0)
		var start time.Time
		var all sync.WaitGroup
		for _, conn := range []*zk.Conn{near, far} {
			_, _, gone, err := conn.GetW("/n")
			need.OK(t, err)
			all.Go(func() {
				<-gone
				took(t, "event", start, 2*oneWay)
			})
		}
		start = time.Now()
		s.OnChange(func(zktest.View, []zktest.Change) { took(t, "change", start, oneWay) })
		need.OK(t, near.Delete("/n", -1))
		took(t, "answer", start, 2*oneWay)
		all.Wait()
	})
}

func TestCutLosesWhatIsOnItsWay(t *testing.T) {
	for sent, applied := range map[time.Duration]bool{oneWay / 2: false, oneWay * 3 / 2: true} {
		distant(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, timeout, addr)
			id := conn.SessionID()
			start := time.Now()
			time.AfterFunc(sent, func() { s.Cut(id) })
			need.That(t, fmt.Sprintf("cut after %v: no error", sent), need.ErrOf(conn.Create("/n", nil, 0, everybody)) != nil)
			took(t, "error", start, sent)
			need.Equal(t, fmt.Sprintf("cut after %v: applied", sent), s.Exists("/n"), applied)
		})
	}
}
