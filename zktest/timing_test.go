package zktest_test

import (
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/zktest"
)

// shortest is the shortest session both targets grant here.
const shortest = 400 * time.Millisecond

// onBoth runs a conformance test whose outcome is not text but time, against both targets.
func onBoth(t *testing.T, test func(t *testing.T, on target)) {
	t.Run("model", func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{MinSessionTimeout: shortest, ContainerCheck: 50 * time.Millisecond})
		test(t, target{addr, s.DialTimeout})
	})
	t.Run("server", func(t *testing.T) {
		s := zkservertest.Start(t, zkserver.Config{
			NoSync: true, TickTime: shortest / 2, ContainerCheck: 50 * time.Millisecond,
		})
		test(t, target{s.Addr(), net.DialTimeout})
	})
}

func TestLostSessionExpires(t *testing.T) {
	onBoth(t, func(t *testing.T, on target) {
		a, b := newClient(t, on, shortest), newClient(t, on, 10*time.Second)
		t.Cleanup(a.close)
		t.Cleanup(b.close)
		if _, err := a.conn.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		_, _, gone, err := b.conn.GetW("/e")
		if err != nil {
			t.Fatal(err)
		}
		lost := a.conn.SessionID()
		a.cut()
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Errorf("after the end of its session: got %+v, want its deletion", ev)
		}
		a.mu.Lock()
		a.down = false
		a.mu.Unlock()
		a.await("new session", func() bool { return a.sessions == 2 })
		if a.conn.SessionID() == lost {
			t.Errorf("session %#x is back from the dead", lost)
		}
	})
}

func TestOnlyContainersOnceUsedAreReaped(t *testing.T) {
	onBoth(t, func(t *testing.T, on target) {
		c := newClient(t, on, 10*time.Second)
		t.Cleanup(c.close)
		acl := zk.WorldACL(zk.PermAll)
		create := func(path string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		create(c.conn.CreateContainer("/used", nil, zk.FlagContainer, acl))
		create(c.conn.CreateContainer("/unused", nil, zk.FlagContainer, acl))
		create(c.conn.CreateContainer("/last", nil, zk.FlagContainer, acl))
		create(c.conn.Create("/plain", nil, zk.FlagContainer, acl)) // a container by flag alone is none
		_, _, gone, err := c.conn.GetW("/last")
		if err != nil {
			t.Fatal(err)
		}
		for _, parent := range []string{"/plain", "/used", "/last"} {
			create(c.conn.Create(parent+"/child", nil, 0, acl))
		}
		for _, parent := range []string{"/plain", "/used", "/last"} {
			if err := c.conn.Delete(parent+"/child", -1); err != nil {
				t.Fatal(err)
			}
		}
		if ev := <-gone; ev.Type != zk.EventNodeDeleted {
			t.Errorf("event: got %+v, want deletion", ev)
		}
		waitFor(t, "reaping", func() bool {
			used, _, err := c.conn.Exists("/used")
			return err == nil && !used
		})
		for _, path := range []string{"/plain", "/unused"} {
			if ok, _, err := c.conn.Exists(path); !ok || err != nil {
				t.Errorf("Exists(%q): got %t, %v, want true", path, ok, err)
			}
		}
	})
}
