package zktest_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/zktest"
)

var everybody = zk.WorldACL(zk.PermAll)

// once meets the nth create of the run at a stage with an action.
func once(stage zktest.Direction, nth int, action zktest.Action) func(*zktest.Frame) zktest.Action {
	return func(f *zktest.Frame) zktest.Action {
		if f.Dir == stage && f.Op == "create" && f.Nth == nth {
			return action
		}
		return zktest.Pass
	}
}

func TestCutBeforeAndAfterApply(t *testing.T) {
	for stage, applied := range map[zktest.Direction]bool{zktest.Request: false, zktest.Reply: true} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, 10*time.Second, addr)
			s.Intercept(once(stage, 2, zktest.Cut))
			if _, err := conn.Create("/1", nil, 0, everybody); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Create("/2", nil, 0, everybody); !errors.Is(err, zk.ErrConnectionClosed) {
				t.Errorf("cut at %v: got %v, want %v", stage, err, zk.ErrConnectionClosed)
			}
			if got := s.Exists("/2"); got != applied {
				t.Errorf("cut at %v: applied %t, want %t", stage, got, applied)
			}
		})
	}
}

func TestDroppedFrameIsNeverAnswered(t *testing.T) {
	for stage, applied := range map[zktest.Direction]bool{zktest.Request: false, zktest.Reply: true} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, 10*time.Second, addr)
			s.Intercept(once(stage, 1, zktest.Drop))
			answered := make(chan error, 1)
			go func() {
				_, err := conn.Create("/1", nil, 0, everybody)
				answered <- err
			}()
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := s.Exists("/1"); got != applied {
				t.Errorf("dropped at %v: applied %t, want %t", stage, got, applied)
			}
			if _, _, err := conn.Get("/"); err != nil {
				t.Errorf("a later request fails: %v", err)
			}
			select {
			case err := <-answered:
				t.Errorf("dropped at %v: answered with %v", stage, err)
			default:
			}
			s.CutAll()
			if err := <-answered; !errors.Is(err, zk.ErrConnectionClosed) {
				t.Errorf("after the cut: got %v, want %v", err, zk.ErrConnectionClosed)
			}
		})
	}
}

func TestDroppedHandshakeIsNeverAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var dials atomic.Int32
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "connect" {
				dials.Add(1)
				return zktest.Drop
			}
			return zktest.Pass
		})
		conn, events, err := zk.Connect([]string{addr, addr}, 3*time.Second, zk.WithDialer(s.DialTimeout),
			zk.WithLogger(zkconn.Silent{}))
		if err != nil {
			t.Fatal(err)
		}
		const patience = 20 * time.Second // of the client with a handshake: ten times two thirds of its timeout
		time.Sleep(patience - 1)
		if got := dials.Load(); got != 1 {
			t.Errorf("%d handshakes within the client's patience, want 1", got)
		}
		time.Sleep(time.Minute)
		if dials.Load() < 2 {
			t.Error("client never tried again")
		}
		s.Intercept(nil)
		conn.Close()
		s.Close()
		for range events {
		}
	})
}

func TestDroppedRequestsDoNotProlongTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 9*time.Second, addr)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "ping" && f.Dir == zktest.Request {
				return zktest.Drop
			}
			return zktest.Pass
		})
		id := conn.SessionID()
		// The client gives up after 6 s without an answer, reconnects at once, and so on.
		time.Sleep(9*time.Second - 1)
		if got := len(s.Sessions()); got != 1 {
			t.Fatalf("%d sessions, want 1", got)
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action { return zktest.Drop })
		time.Sleep(9 * time.Second)
		if sessions := s.Sessions(); len(sessions) != 0 {
			t.Errorf("session %#x lives on: %+v", id, sessions)
		}
	})
}

func TestDelayHoldsWhatIsBehind(t *testing.T) {
	for _, stage := range []zktest.Direction{zktest.Request, zktest.Reply} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := connect(t, s, 10*time.Second, addr)
			s.Intercept(once(stage, 1, zktest.Delay(2*time.Second)))
			start := time.Now()
			go conn.Create("/1", nil, 0, everybody)
			synctest.Wait()
			if got, want := s.Exists("/1"), stage == zktest.Reply; got != want {
				t.Errorf("delayed at %v: applied at once %t, want %t", stage, got, want)
			}
			if ok, _, err := conn.Exists("/1"); !ok || err != nil {
				t.Errorf("Exists behind the delay: got %t, %v", ok, err)
			}
			if got := time.Since(start); got != 2*time.Second {
				t.Errorf("delayed at %v: answered after %v, want 2s", stage, got)
			}
		})
	}
}

func TestErrorIsAnsweredWithoutApplying(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		s.Intercept(once(zktest.Request, 1, zktest.Error(zk.ErrSessionExpired)))
		if _, err := conn.Create("/1", nil, 0, everybody); !errors.Is(err, zk.ErrSessionExpired) {
			t.Errorf("Create: got %v, want %v", err, zk.ErrSessionExpired)
		}
		if s.Exists("/1") {
			t.Error("Create was applied")
		}
	})
}

func TestForgedExpiryLeavesTheOldSessionAlive(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 6*time.Second, addr)
		old := conn.SessionID()
		if _, err := conn.Create("/e", nil, zk.FlagEphemeral, everybody); err != nil {
			t.Fatal(err)
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "connect" && f.Dir == zktest.Request && f.Session == old {
				return zktest.Error(zk.ErrSessionExpired)
			}
			return zktest.Pass
		})
		s.Cut(old)
		time.Sleep(6*time.Second - 1)
		synctest.Wait()
		if now := conn.SessionID(); now == old || now == 0 {
			t.Errorf("client in session %#x, want a new one", now)
		}
		if !s.Exists("/e") {
			t.Error("node of the old session is gone before its timeout")
		}
		time.Sleep(1)
		synctest.Wait()
		if s.Exists("/e") {
			t.Error("node of the old session outlives its timeout")
		}
	})
}

func TestFramesAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		a, b := connect(t, s, 10*time.Second, addr), connect(t, s, 10*time.Second, addr)
		var seen []zktest.Frame
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			seen = append(seen, *f)
			return zktest.Pass
		})
		for _, conn := range []*zk.Conn{a, b} {
			if _, err := conn.Create("/"+string(rune('a'+conn.SessionID()%2)), nil, 0, everybody); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if len(seen) != 4 {
			t.Fatalf("%d frames, want 4: %v", len(seen), seen)
		}
		want := zktest.Frame{
			Dir: zktest.Reply, Op: "create", Path: seen[2].Path, Session: b.SessionID(), Member: addr,
			Nth: 2, NthOfSession: 1,
		}
		if seen[3] != want {
			t.Errorf("last frame: got %v, want %v", seen[3], want)
		}
	})
}

func TestWatchEventCanBeDropped(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		_, _, events, err := conn.ExistsW("/n")
		if err != nil {
			t.Fatal(err)
		}
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "event" && f.Path == "/n" {
				return zktest.Drop
			}
			return zktest.Pass
		})
		if _, err := conn.Create("/n", nil, 0, everybody); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		select {
		case ev := <-events:
			t.Errorf("got %+v, want nothing", ev)
		default:
		}
	})
}

// The hook runs without locks, so it can strike in the middle of an operation.
func TestHookMayUseTheControls(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "create" && f.Dir == zktest.Request {
				s.Expire(f.Session)
			}
			return zktest.Pass
		})
		if _, err := conn.Create("/e", nil, zk.FlagEphemeral, everybody); !errors.Is(err, zk.ErrConnectionClosed) {
			t.Errorf("Create: got %v, want %v", err, zk.ErrConnectionClosed)
		}
		if s.Exists("/e") {
			t.Error("a request of an expired session was applied")
		}
	})
}
