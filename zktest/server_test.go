package zktest_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServesTCP(t *testing.T) {
	s := zktest.Start(t)
	l, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, target{l.String(), net.DialTimeout}, 10*time.Second)
	if _, err := c.conn.Create("/n", nil, 0, everybody); err != nil {
		t.Error(err)
	}
	if got := s.Sessions()[0].Member; got != l.String() {
		t.Errorf("member: got %s, want %s", got, l)
	}
	c.close()
	s.Close()
	if nc, err := net.Dial("tcp", l.String()); err == nil {
		nc.Close()
		t.Error("still listening after Close")
	}
}

// goleak, in TestMain, checks that neither side leaves a goroutine.
func TestCloseEndsConnectionsInEveryState(t *testing.T) {
	s := zktest.NewServer(zktest.Config{})
	for _, address := range []string{addr, addr2} {
		silent, err := s.DialContext(t.Context(), "tcp", address) // never says a word
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { silent.Close() })
	}
	c := newClient(t, target{addr, s.DialTimeout}, 10*time.Second)
	s.Freeze()
	go c.conn.Create("/n", nil, 0, everybody)
	s.Close()
	s.Close()
	if _, err := s.DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("DialContext after Close: got %v, want %v", err, syscall.ECONNREFUSED)
	}
	if _, err := s.Listen("127.0.0.1:0"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Listen after Close: got %v, want %v", err, net.ErrClosed)
	}
	c.close()
}

func TestServerOfATestClosesAtItsEnd(t *testing.T) {
	var s *zktest.Server
	t.Run("test", func(t *testing.T) {
		s = zktest.Start(t, zktest.Config{MaxSessionTimeout: 5 * time.Second})
		conn := connect(t, s, 10*time.Second, addr)
		if got := s.Sessions()[0].Timeout; got != 5*time.Second {
			t.Errorf("session timeout: got %v, want that of the Config", got)
		}
		t.Cleanup(func() { // before the server goes
			if _, _, err := conn.Exists("/"); err != nil {
				t.Errorf("while the test cleans up: %v", err)
			}
		})
	})
	if _, err := s.DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("DialContext after the test: got %v, want %v", err, syscall.ECONNREFUSED)
	}
}

func TestCloseWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		release := make(chan struct{})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			<-release
			return zktest.Pass
		})
		go conn.Exists("/")
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			s.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close returned while a hook was running")
		default:
		}
		close(release)
		<-closed
	})
}

func TestDialContextHonoursContext(t *testing.T) {
	s := zktest.Start(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := s.DialContext(ctx, "tcp", addr); !errors.Is(err, cause) {
		t.Errorf("DialContext: got %v, want %v", err, cause)
	}
}

func TestMisusePanics(t *testing.T) {
	for name, misuse := range map[string]func(){
		"limits":       func() { zktest.Start(t, zktest.Config{MinSessionTimeout: time.Hour}) },
		"two configs":  func() { zktest.Start(t, zktest.Config{}, zktest.Config{}) },
		"no such node": func() { zktest.Start(t).SetSequence("/none", 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
}
