package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/zktest"
)

// connect returns a client of the member at addr whose session is there.
func connect(t *testing.T, s *zktest.Server, timeout time.Duration, addr string) *zk.Conn {
	t.Helper()
	return dial(t, s.DialTimeout, timeout, addr)
}

// dial connects with a dialer. The address is listed twice because the client waits a second before it tries its only
// address again.
func dial(t *testing.T, dialer zk.Dialer, timeout time.Duration, addr string) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{addr, addr}, timeout, dialer)
}

const addr = "127.0.0.1:2181"

// bubble runs f with a server in a synctest bubble; the bubble checks that nothing of either is left behind.
func bubble(t *testing.T, f func(t *testing.T, s *zktest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		f(t, s)
	})
}

func TestClientWorksInBubble(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		path, err := conn.Create("/lock-", []byte("x"), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err != nil || path != "/lock-0000000000" {
			t.Fatalf("Create: got %q, %v", path, err)
		}
		_, stat, events, err := conn.GetW(path)
		if err != nil || stat.EphemeralOwner != conn.SessionID() {
			t.Fatalf("GetW: got %+v, %v; want owner %#x", stat, err, conn.SessionID())
		}
		if err := conn.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
		if ev := <-events; ev.Type != zk.EventNodeDeleted || ev.Path != path {
			t.Errorf("event: got %+v, want deletion of %s", ev, path)
		}
	})
}

func TestIdleSessionOutlivesItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 10*time.Second, addr)
		id := conn.SessionID()
		time.Sleep(time.Hour)
		if got := conn.SessionID(); got != id || conn.State() != zk.StateHasSession {
			t.Errorf("after an idle hour: session %#x in %v, want %#x", got, conn.State(), id)
		}
	})
}

func TestSilentSessionExpiresAtItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := connect(t, s, 6*time.Second, addr)
		if _, err := conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		s.Mute(conn.SessionID(), zktest.Request)
		time.Sleep(6*time.Second - 1)
		synctest.Wait()
		if !s.Exists("/e") {
			t.Error("node gone before the timeout")
		}
		time.Sleep(1)
		synctest.Wait()
		if s.Exists("/e") {
			t.Error("node still there after the timeout")
		}
	})
}
