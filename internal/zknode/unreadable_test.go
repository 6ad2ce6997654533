package zknode_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// The function secret creates a node at the head of the queue. Only its creator may read the node.
func secret(t *testing.T, conn *zk.Conn) (node string) {
	t.Helper()
	put(t, conn, 0, "/locks", path)
	return create(t, conn, path+"/_c_11111111-2222-4333-8444-555555555555-lock-", "",
		zk.FlagEphemeral|zk.FlagSequence, zk.DigestACL(zk.PermAll, "somebody", "else"))
}

// A server sends no events about a node that the client may not read. Therefore the client watches the queue instead. The node may be
// deleted between the list and the watch, and the client still has to notice that.
func TestEndOfAnUnreadablePredecessorIsNoticedAtOnce(t *testing.T) {
	each(t, map[string]bool{"later": false, "before the watch": true}, func(t *testing.T, s *zktest.Server, before bool) {
		conn := raw(t, s)
		node := secret(t, conn)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if before && f.Op == "getChildren2" && f.Dir == zktest.Request && f.Nth == 2 { // the second list sets the watch
				remove(t, conn, node)
			}
			return zktest.Pass
		})
		began := time.Now()
		r := start(t, s).queue(t.Context())
		if !before {
			if !r.waiting() {
				t.Fatalf("Acquire behind an unreadable node: %v, %v, want it to wait", r.node, r.err)
			}
			remove(t, conn, node)
		}
		r.granted(t).Release()
		wantWithin(t, 0, "the grant after the end of the predecessor", began)
	})
}

// Two waiters of one client share a watch on the queue. Their reads must not wake each other again and again.
func TestTwoBehindAnUnreadablePredecessorComeToRest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node, p := secret(t, conn), start(t, s)
		first, second := p.queue(t.Context()), p.queue(t.Context())
		tr := record(s)
		need.Empty(t, "sent while they wait", tr.take())
		need.That(t, "one of them does not wait", first.waiting() && second.waiting())
		remove(t, conn, node)
		synctest.Wait()
		first.granted(t).Release()
		second.await(t)
		second.granted(t).Release()
	})
}

// A change of the queue must not be taken for the end of the unreadable node.
func TestChangeBehindAnUnreadablePredecessorIsNotTakenForItsEnd(t *testing.T) { // I1 I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node := secret(t, conn)
		p := start(t, s)
		r := p.queue(t.Context())
		start(t, s).queue(t.Context())
		need.That(t, "it does not wait after another contender has joined", r.waiting())
		listeners := p.Listeners()
		time.Sleep(20 * timeout) // by then, its timer has made it read the queue many times
		need.That(t, "it does not wait after a while", r.waiting())
		need.AtMost(t, "listeners after a while", p.Listeners(), listeners)
		remove(t, conn, node)
		r.granted(t).Release()
	})
}
