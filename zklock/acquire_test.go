package zklock_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestReleaseIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event { // it says that the node is gone, too
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := n.Release(); err != nil || p.Reaping() > 0 {
			t.Errorf("Release: %v, with %d nodes still to be deleted", err, p.Reaping())
		}
		tr := record(s)
		time.Sleep(timeout)
		if ops := tr.take(); len(ops) > 0 {
			t.Errorf("sent after the delete was answered: %v", ops)
		}
	})
}

func TestTryAcquireThatMayNotListTheQueueAgainLeavesNoNode(t *testing.T) { // I5
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		lists := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request {
				if lists++; lists == 2 {
					return zktest.Error(zktest.CodeNoAuth)
				}
			}
			return zktest.Pass
		})
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoAuth)
		wantEmpty(t, s)
	})
}

func TestReleaseTwiceSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		tr := record(s)
		wantErr(t, "second Release", n.Release(), zklock.ErrReleased)
		_, err := n.Requeue(t.Context())
		wantErr(t, "Requeue after Release", err, zklock.ErrReleased)
		if got := tr.take(); len(got) > 0 {
			t.Errorf("sent: %v", got)
		}
	})
}

func TestTokenIsTheCzxidAndGrowsAcrossDeletionOfTheParent(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, processes := raw(t, s), []process{start(t, s), start(t, s)}
		var last int64
		for i := range 4 {
			n := processes[i%2].acquire(t)
			if _, stat, _ := s.Get(n.Path()); n.Token() != stat.Czxid {
				t.Errorf("token: got %d, want czxid %d", n.Token(), stat.Czxid)
			}
			if n.Token() <= last {
				t.Errorf("token %d after %d", n.Token(), last)
			}
			last = n.Token()
			n.Release()
			if err := conn.Delete(path, -1); err != nil { // sequence numbers start again
				t.Fatal(err)
			}
		}
	})
}
