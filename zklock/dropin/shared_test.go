package dropin_test

import (
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/zklock/dropin"
	"github.com/tierlock/tierlock/zklock/zktest"
)

var openACL = zk.WorldACL(zk.PermAll)

// collected runs the garbage collector until the condition is true.
func collected(t *testing.T, what string, condition func() bool) {
	t.Helper()
	waittest.Eventually(t, what, func() bool {
		runtime.GC()
		return condition()
	})
}

func TestClosedConnectionIsCollected(t *testing.T) { // I10
	srv := zktest.Start(t)
	uses := map[string]func(t *testing.T, conn *zk.Conn){
		"never locked": func(*testing.T, *zk.Conn) {},
		"many handles": func(t *testing.T, conn *zk.Conn) { lockAndUnlock(t, conn, 20) },
		"held when it is closed": func(t *testing.T, conn *zk.Conn) {
			locktest.WantErr(t, "Lock", dropin.NewLock(conn, "/compat/held", openACL).Lock(), nil)
		},
		"waiting when it is closed": func(t *testing.T, conn *zk.Conn) {
			other := newScene(t, modelAddr, srv.DialTimeout).conn
			locktest.WantErr(t, "Lock", zk.NewLock(other, "/compat/busy", openACL).Lock(), nil)
			go dropin.NewLock(conn, "/compat/busy", openACL).Lock()
			waittest.Eventually(t, "the handle waits", func() bool { return len(srv.Children("/compat/busy")) == 2 })
		},
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			conn := usedAndClosed(t, srv, use)
			collected(t, "the connection is collected", func() bool { return conn.Value() == nil })
			collected(t, "its entry is gone", func() bool { return !dropin.Known(conn) })
		})
	}
}

// The entry of a registry may be removed late, when a new registry has already taken its place. That new entry must stay. An idle
// connection without handles has no registry.
func TestEntryGoesWithTheLastHandleAndNotWithThoseBefore(t *testing.T) { // I10
	srv := zktest.Start(t)
	s := newScene(t, modelAddr, srv.DialTimeout)
	conn := weak.Make(s.conn)
	for range 50 {
		dropin.NewLock(s.conn, "/compat/a", openACL)
		runtime.GC()
		next := dropin.NewLock(s.conn, "/compat/a", openACL)
		runtime.GC() // the cleanup of the first handle has started when this returns
		for range 10 {
			runtime.Gosched()
		}
		need.That(t, "the entry of a handle in use is gone", dropin.Known(conn))
		runtime.KeepAlive(next)
	}
	collected(t, "the entry is gone", func() bool { return !dropin.Known(conn) })
	lockAndUnlock(t, s.conn, 2)
	runtime.KeepAlive(s.conn)
}

// usedAndClosed opens a connection, uses it and closes it. usedAndClosed keeps no reference to the connection.
func usedAndClosed(t *testing.T, srv *zktest.Server, use func(*testing.T, *zk.Conn)) weak.Pointer[zk.Conn] {
	t.Helper()
	conn, events, err := zk.Connect([]string{modelAddr, modelAddr}, sessionTimeout,
		zk.WithDialer(srv.DialTimeout), zk.WithLogInfo(false))
	need.OK(t, err)
	waittest.Eventually(t, "a session", func() bool { return conn.State() == zk.StateHasSession })
	dropin.NewLock(conn, "/compat/unused", openACL)
	use(t, conn)
	conn.Close()
	for range events { // closing this channel is the last act of the library
	}
	return weak.Make(conn)
}

// lockAndUnlock locks and unlocks with many handles at once.
func lockAndUnlock(t *testing.T, conn *zk.Conn, handles int) {
	t.Helper()
	var wg sync.WaitGroup
	for range handles {
		wg.Go(func() {
			l := dropin.NewLock(conn, "/compat/a", openACL)
			if err := l.Lock(); err != nil {
				t.Error(err)
				return
			}
			locktest.WantErr(t, "Unlock", l.Unlock(), nil)
		})
	}
	wg.Wait()
}
