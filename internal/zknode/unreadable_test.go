package zknode_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// secret puts a node that only its maker may read at the head of the queue.
func secret(t *testing.T, conn *zk.Conn) (node string) {
	t.Helper()
	put(t, conn, 0, "/locks", path)
	return create(t, conn, path+"/_c_11111111-2222-4333-8444-555555555555-lock-", "",
		zk.FlagEphemeral|zk.FlagSequence, zk.DigestACL(zk.PermAll, "somebody", "else"))
}

// A server tells nobody about a node that he may not read, so the queue is watched. The node may go between the list that showed
// it and the watch.
func TestEndOfAnUnreadablePredecessorIsNoticedAtOnce(t *testing.T) {
	each(t, map[string]bool{"later": false, "before the watch": true}, func(t *testing.T, s *zktest.Server, before bool) {
		conn := raw(t, s)
		node := secret(t, conn)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if before && f.Op == "getChildren2" && f.Dir == zktest.Request && f.Nth == 2 { // the one with the watch
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

// Two of one client have one watch on the queue. They do not wake one another up when they look.
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

// The queue changes for other reasons, too.
func TestChangeBehindAnUnreadablePredecessorIsNotTakenForItsEnd(t *testing.T) { // I1 I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node := secret(t, conn)
		p := start(t, s)
		r := p.queue(t.Context())
		start(t, s).queue(t.Context())
		need.That(t, "it does not wait after somebody joined", r.waiting())
		listeners := p.Listeners()
		time.Sleep(20 * timeout) // and looked again, many times, by the clock
		need.That(t, "it does not wait after a while", r.waiting())
		need.AtMost(t, "listeners after a while", p.Listeners(), listeners)
		remove(t, conn, node)
		r.granted(t).Release()
	})
}
