package zklock_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// attach returns a process over a connection made elsewhere.
func attach(t *testing.T, s *zktest.Server) (process, *zk.Conn) {
	t.Helper()
	conn := raw(t, s)
	return attachTo(t, conn), conn
}

func attachTo(t *testing.T, conn *zk.Conn, opts ...zklock.Option) process {
	t.Helper()
	c, err := zklock.Attach(conn, append(opts, zklock.WithSessionTimeout(timeout))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return process{c, lockAt(t, c, path), conn.SessionID()}
}

// A look that fails has set no watch, so nobody waits for its event.
func TestAttachedLooksThatFailLeaveNoGoroutine(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request {
				return zktest.Error(zktest.CodeNoAuth)
			}
			return zktest.Pass
		})
		contested(n)
		before := runtime.NumGoroutine()
		time.Sleep(time.Minute) // many looks
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before {
			t.Errorf("%d goroutines, then %d", before, after)
		}
		wantErr(t, "Release", n.Release(), nil)
	})
}

func TestAttachedChecksItsOptions(t *testing.T) {
	if _, err := zklock.Attach(nil, zklock.WithSessionTimeout(-1)); err == nil {
		t.Error("Attach with a negative session timeout: got no error")
	}
}

func TestAttachedWaiterSurvivesTheExpiryOfItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder := start(t, s)
		n := holder.acquire(t)
		p, _ := attach(t, s)
		waiter := p.queue(t.Context())
		s.Expire(p.session)
		<-time.After(timeout) // virtual
		if !waiter.waiting() || len(s.Children(path)) != 2 {
			t.Fatalf("queue after the expiry: %q, want the holder and a new node", s.Children(path))
		}
		wantErr(t, "Release", n.Release(), nil)
		wantErr(t, "Release", waiter.granted(t).Release(), nil)
	})
}

// A connection that is down says nothing about the lock.
func TestAttachedLockOutlivesADisconnect(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		n := p.acquire(t)
		s.Member(addr).Refuse()
		s.Cut(p.session)
		synctest.Wait()
		if !n.Suspended() {
			t.Error("Suspended while the connection is down: got false")
		}
		wantErr(t, "Client.Err", p.Err(), zk.ErrNoServer)
		s.Member(addr).Accept()
		<-time.After(timeout / 2) // virtual
		if n.Suspended() {
			t.Error("Suspended when the connection is back: got true")
		}
		wantErr(t, "Release", n.Release(), nil)
		wantEmpty(t, s)
	})
}
