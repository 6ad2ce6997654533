package zklock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A parent that is there is neither changed nor taken away.
func TestOnlyMissingParentsAreMade(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		put(t, raw(t, s), 0, "/locks")
		_, before, _ := s.Get("/locks")
		p := start(t, s)
		p.acquire(t).Release()
		time.Sleep(10 * time.Minute) // the container is taken away by the server
		_, after, _ := s.Get("/locks")
		after.Cversion, after.Pzxid = before.Cversion, before.Pzxid // these are of its children
		if after != before || s.Exists(path) {
			t.Errorf("the parent was %+v, is %+v; the container is there: %t", before, after, s.Exists(path))
		}
	})
}

func TestParentThatOthersTakeAwayIsMadeAnewAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		times := 4
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			below := f.Op == zktest.OpCreate || f.Op == zktest.OpCreateContainer && f.Path == path
			if below && f.Stage == zktest.Request && s.Exists("/locks") && times > 0 {
				times--
				conn.Delete(path, -1)
				conn.Delete("/locks", -1)
			}
			return zktest.Pass
		})
		begun := time.Now()
		p.acquire(t).Release()
		if d := time.Since(begun); d > 0 || times > 0 {
			t.Errorf("took %v, with %d times to go", d, times)
		}
	})
}

func TestParentsThatAreNeverThereAreNotTriedInAHurry(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		tries, begun := 0, time.Now()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpCreate && f.Stage == zktest.Request && tries < 1000 && time.Since(begun) < time.Second {
				tries++
				return zktest.Error(zktest.CodeNoNode)
			}
			return zktest.Pass
		})
		if p.acquire(t).Release(); tries > 30 {
			t.Errorf("tried %d times within %v", tries, time.Since(begun))
		}
	})
}

// The reply is lost with a server, and the next one does not know of the parent yet.
func TestAbsenceOfAParentIsNotBelievedOfAServerThatLags(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const behind = "127.0.0.1:2182"
		put(t, raw(t, s), 0, "/locks")
		s.Member(behind).Refuse()
		c, err := zklock.Dial(t.Context(), addr+","+behind, zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Op == zktest.OpCreateContainer && f.Stage == zktest.Request:
				s.Member(behind).Lag()
				s.Member(behind).Accept()
				s.Member(addr).Refuse()
			case f.Op == zktest.OpCreateContainer:
				return zktest.Drop
			case f.Op == zktest.OpCreate && s.Exists(path):
				return zktest.Cut
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = lockAt(t, c, path).Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		if time.Sleep(timeout); c.Reaping() > 0 || s.Exists(path) {
			t.Errorf("reaping %d, the parent is there: %t", c.Reaping(), s.Exists(path))
		}
	})
}

// Somebody deletes the parents as fast as they are made.
func TestParentsThatDoNotStayEndATryAndHoldUpAnAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var creates atomic.Int64
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpCreate && f.Stage == zktest.Request && creates.Add(1) < 1000 {
				return zktest.Error(zktest.CodeNoNode)
			}
			return zktest.Pass
		})
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoNode)
		wantMention(t, err, path, "deleted again")
		wantNoParents(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		wantMention(t, err, path, "deleted again")
	})
}
