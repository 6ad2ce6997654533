package zktest_test

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zktest"
)

const oneWay = 10 * time.Millisecond

// distant runs f with a server that is one latency away from its clients.
func distant(t *testing.T, f func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: oneWay})
		f(t, s)
	})
}

func TestHandshakeAndRequestTakeARoundTripEach(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		start := time.Now()
		conn := connect(t, s, 10*time.Second, addr)
		if got := time.Since(start); got != 2*oneWay {
			t.Errorf("handshake: answered after %v, want %v", got, 2*oneWay)
		}
		for range 3 {
			start = time.Now()
			if _, _, err := conn.Get("/"); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(start); got != 2*oneWay {
				t.Errorf("Get: answered after %v, want %v", got, 2*oneWay)
			}
		}
	})
}

// ask sends a request of a raw connection, answer reads the next reply.
func ask(nc net.Conn, xid int32) {
	var e wire.Encoder
	e.RequestHeader(wire.RequestHeader{Xid: xid, Op: wire.OpExists})
	e.String("/")
	e.Bool(false)
	nc.Write(wire.Frame(e))
}

func answer(nc net.Conn) (xid int32, err error) {
	frame, err := wire.ReadFrame(nc, nil, 1<<20)
	if err != nil {
		return 0, err
	}
	d := wire.Decoder{Rest: wire.Body(frame)}
	return d.ReplyHeader().Xid, nil
}

// open returns a raw connection with a session.
func open(t *testing.T, s *zktest.Server) net.Conn {
	t.Helper()
	nc, err := s.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	var hello wire.Encoder
	hello.ConnectRequest(wire.ConnectRequest{Timeout: 10 * time.Second, Password: make([]byte, wire.PasswordLen)})
	nc.Write(wire.Frame(hello))
	if _, err := wire.ReadFrame(nc, nil, 1<<20); err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestRequestsSentTogetherAreAnsweredTogetherInOrder(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		nc := open(t, s)
		start := time.Now()
		for xid := range int32(20) {
			ask(nc, xid)
		}
		for xid := range int32(20) {
			if got, err := answer(nc); got != xid {
				t.Errorf("answer %d: got %d, %v", xid, got, err)
			}
			if got := time.Since(start); got != 2*oneWay {
				t.Errorf("request %d: answered after %v, want %v", xid, got, 2*oneWay)
			}
		}
	})
}

func TestReplyBeforeACutArrives(t *testing.T) {
	for range 20 { // else it would be a matter of luck
		bubble(t, func(t *testing.T, s *zktest.Server) {
			nc := open(t, s)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Reply && f.Nth == 2 {
					return zktest.Cut
				}
				return zktest.Pass
			})
			ask(nc, 1)
			ask(nc, 2)
			if got, err := answer(nc); got != 1 || err != nil {
				t.Errorf("first answer: got %d, %v", got, err)
			}
			if got, err := answer(nc); err == nil {
				t.Errorf("second answer: got %d, want a cut", got)
			}
		})
	}
}

// Half a round trip passes before a change, and half of one before those who watch know. Who asked for it and watches
// hears of it first and gets its answer at the same time.
func TestEventsTravelFromTheMomentOfTheChange(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		near, far := connect(t, s, 10*time.Second, addr), connect(t, s, 10*time.Second, addr2)
		if _, err := near.Create("/n", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		var watches []<-chan zk.Event
		for _, conn := range []*zk.Conn{near, far} {
			_, _, gone, err := conn.GetW("/n")
			if err != nil {
				t.Fatal(err)
			}
			watches = append(watches, gone)
		}
		start := time.Now()
		var changed time.Duration
		s.OnChange(func(zktest.View, []zktest.Change) { changed = time.Since(start) })
		var all sync.WaitGroup
		for _, gone := range watches {
			all.Go(func() {
				<-gone
				if got := time.Since(start); got != 2*oneWay {
					t.Errorf("event: after %v, want %v", got, 2*oneWay)
				}
			})
		}
		if err := near.Delete("/n", -1); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got != 2*oneWay || changed != oneWay {
			t.Errorf("changed after %v, answered after %v, want %v and %v", changed, got, oneWay, 2*oneWay)
		}
		all.Wait()
	})
}

func TestCutLosesWhatIsOnItsWay(t *testing.T) {
	for sent, applied := range map[time.Duration]bool{oneWay / 2: false, oneWay * 3 / 2: true} {
		distant(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, 10*time.Second, addr)
			id := conn.SessionID()
			start := time.Now()
			time.AfterFunc(sent, func() { s.Cut(id) })
			_, err := conn.Create("/n", nil, 0, everybody)
			if got := time.Since(start); err == nil || got != sent {
				t.Errorf("cut after %v: answered after %v with %v, want an error at once", sent, got, err)
			}
			if got := s.Exists("/n"); got != applied {
				t.Errorf("cut after %v: applied %t, want %t", sent, got, applied)
			}
		})
	}
}

func TestDelayAddsToTheLatency(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		s.Intercept(func(*zktest.Frame) zktest.Action { return zktest.Delay(time.Millisecond) })
		start := time.Now()
		if _, _, err := conn.Get("/"); err != nil {
			t.Fatal(err)
		}
		if got, want := time.Since(start), 2*oneWay+2*time.Millisecond; got != want {
			t.Errorf("answered after %v, want %v", got, want)
		}
	})
}

func TestSessionLivesAcrossTheDistance(t *testing.T) {
	distant(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		id := conn.SessionID()
		time.Sleep(time.Hour)
		if got := conn.SessionID(); got != id || conn.State() != zk.StateHasSession {
			t.Errorf("after an idle hour: session %#x in %v, want %#x", got, conn.State(), id)
		}
	})
}

func TestLatencyOverTCP(t *testing.T) {
	s := zktest.Start(t, zktest.Config{Latency: oneWay})
	l, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, target{l.String(), net.DialTimeout}, 10*time.Second)
	t.Cleanup(c.close)
	start := time.Now()
	if _, _, err := c.conn.Get("/"); err != nil {
		t.Error(err)
	}
	if got := time.Since(start); got < 2*oneWay {
		t.Errorf("answered after %v, want %v at least", got, 2*oneWay)
	}
}
