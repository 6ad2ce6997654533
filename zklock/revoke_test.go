package zklock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// revoked reports whether n is known to be asked for, once nothing moves any more.
func revoked(n *zklock.Node) bool {
	c := n.Revoked()
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What a node says goes on being there if it is a description of ours, whatever else is in it, and else gives way to Curator's
// request, which other libraries know.
func TestARequestIsInTheFormThatTheOwnerKnows(t *testing.T) {
	const ours, theirs = "_c_00000000-0000-8000-8000-000000000000-lock-", "_c_00000000-0000-4000-8000-000000000000-lock-"
	for _, c := range []struct{ prefix, before, after string }{
		{ours, `{"later":[1],"pid":7,"v":1}`, `{"later":[1],"pid":7,"revoke":true,"v":1}`},
		{ours, `{"pid":7,"revoke":true,"v":1}`, `{"pid":7,"revoke":true,"v":1}`},
		{ours, `{"pid":7,"v":2}`, "__REVOKE__"},
		{ours, "what NodeData has put there", "__REVOKE__"},
		{theirs, `{"pid":7,"v":1}`, "__REVOKE__"},
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			conn := raw(t, s)
			put(t, conn, 0, "/locks", path)
			name, err := conn.Create(path+"/"+c.prefix, []byte(c.before), zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
			if err != nil {
				t.Fatal(err)
			}
			operator := start(t, s)
			if _, err := operator.lock.Revoke(t.Context()); err != nil {
				t.Fatal(err)
			}
			if data, _, _ := s.Get(name); string(data) != c.after {
				t.Errorf("%s becomes %s, want %s", c.before, data, c.after)
			}
			if queue, err := operator.lock.Contenders(t.Context()); err != nil || !queue[0].Asked {
				t.Errorf("%s: not asked: %+v, %v", c.after, queue, err)
			}
		})
	}
}

// Whoever asks only now whether somebody has asked learns what came before.
func TestARequestFromBeforeIsSeen(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		waited := start(t, s).acquire(t)
		r := start(t, s).queue(t.Context())
		waited.Release()
		for _, n := range []*zklock.Node{r.granted(t), start(t, s).as(second.Exclusive).acquireElsewhere(t)} {
			if _, err := raw(t, s).Set(n.Path(), []byte("__REVOKE__"), -1); err != nil {
				t.Fatal(err)
			}
			if !revoked(n) {
				t.Errorf("%s: not told", n.Path())
			}
		}
	})
}

// acquireElsewhere acquires another lock.
func (p process) acquireElsewhere(t *testing.T) *zklock.Node {
	t.Helper()
	p.lock = lockAt(t, p.Client, "/locks/elsewhere")
	return p.acquire(t)
}

func TestOtherContentIsNoRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		for _, data := range []string{"", "__REVOKE", "__REVOKE__\n", "revoke"} {
			if conn.Set(n.Path(), []byte(data), -1); revoked(n) {
				t.Errorf("%q was taken for a request", data)
			}
		}
		conn.Set(n.Path(), []byte("__REVOKE__"), -1)
		if !revoked(n) {
			t.Error("not told after other writes")
		}
	})
}

// A node that nobody asks about is not read for it.
func TestRevocationCostsNothingUntilSomebodyAsks(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		tr := record(s)
		time.Sleep(timeout / 7)
		if ops := tr.take(); len(ops) > 1 { // a heartbeat
			t.Errorf("sent: %v", ops)
		}
		n.Revoked()
		if ops := tr.take(); len(ops) != 1 || ops[0] != zktest.OpGetData {
			t.Errorf("sent for the first question: %v, want a read", ops)
		}
		n.Revoked()
		if ops := tr.take(); len(ops) != 0 {
			t.Errorf("sent for the second question: %v", ops)
		}
	})
}

// The holder goes between the look and the request: the next one is asked.
func TestRevokeAsksTheHolderOfTheMoment(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		next := start(t, s).queue(t.Context())
		operator := start(t, s)
		gone := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpSetData && f.Stage == zktest.Request && !gone {
				gone = true
				n.Release()
			}
			return zktest.Pass
		})
		told, err := operator.lock.Revoke(t.Context())
		if err != nil || len(told) != 1 || path+"/"+told[0].Node != next.granted(t).Path() || !revoked(next.node) {
			t.Errorf("Revoke: got %+v, %v", told, err)
		}
	})
}

func TestRevokeWithoutPermissionSaysWhich(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/locks", path)
		if _, err := conn.Create(path+"/_c_x-lock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermRead)); err != nil {
			t.Fatal(err)
		}
		_, err := start(t, s).lock.Revoke(t.Context())
		wantErr(t, "Revoke", err, zk.ErrNoAuth)
	})
}

// Whoever is behind wakes for each write to the node ahead, and goes on waiting.
func TestARequestDoesNotDisturbTheQueue(t *testing.T) { // I6
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		var queue []*request
		for range 4 {
			queue = append(queue, start(t, s).queue(t.Context()))
		}
		operator := start(t, s)
		for _, next := range queue {
			for range 3 {
				if _, err := operator.lock.Revoke(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if !next.waiting() {
				t.Fatal("granted beside the holder")
			}
			n.Release()
			n = next.granted(t)
		}
		n.Release()
		wantEmpty(t, s)
	})
}
