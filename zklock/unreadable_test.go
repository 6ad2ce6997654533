package zklock_test

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/zkqueue"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// secret puts a node that only its maker may read at the head of the queue.
func secret(t *testing.T, conn *zk.Conn) (node string) {
	t.Helper()
	put(t, conn, 0, "/locks", path)
	node, err := conn.Create(path+"/_c_11111111-2222-4333-8444-555555555555-lock-", nil,
		zk.FlagEphemeral|zk.FlagSequence, zk.DigestACL(zk.PermAll, "somebody", "else"))
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// A server tells nobody about a node that he may not read, so the queue is watched.
func TestEndOfAnUnreadablePredecessorIsNoticedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node := secret(t, conn)
		p := start(t, s)
		r := p.queue(t.Context())
		if !r.waiting() {
			t.Fatalf("Acquire behind an unreadable node: %v, %v, want it to wait", r.node, r.err)
		}
		before := time.Now()
		if err := conn.Delete(node, -1); err != nil {
			t.Fatal(err)
		}
		r.granted(t).Release()
		if waited := time.Since(before); waited > 0 {
			t.Errorf("granted %v after the end of the predecessor, want at once", waited)
		}
	})
}

func TestOneListensForTheEndOfAnUnreadablePredecessorHoweverLongItTakes(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		secret(t, raw(t, s))
		p := start(t, s)
		if r := p.queue(t.Context()); !r.waiting() {
			t.Fatal("nobody waits")
		}
		before := p.Listeners()
		time.Sleep(20 * timeout) // many looks
		if synctest.Wait(); p.Listeners() > before {
			t.Errorf("%d listeners, %d in the beginning", p.Listeners(), before)
		}
	})
}

// Two of one client have one watch on the queue. They do not wake one another up when they look.
func TestTwoBehindAnUnreadablePredecessorComeToRest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node, p := secret(t, conn), start(t, s)
		first, second := p.queue(t.Context()), p.queue(t.Context())
		tr := record(s)
		if got := tr.take(); len(got) > 0 || !first.waiting() || !second.waiting() {
			t.Errorf("sent while they wait: %v", got)
		}
		if err := conn.Delete(node, -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		first.granted(t).Release()
		second.await(t)
		second.granted(t).Release()
	})
}

// It may go between the list that showed it and the watch.
func TestUnreadablePredecessorThatGoesMeanwhileIsNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node := secret(t, conn)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "getChildren2" && f.Dir == zktest.Request && f.Nth == 2 { // the one with the watch
				if err := conn.Delete(node, -1); err != nil {
					t.Error(err)
				}
			}
			return zktest.Pass
		})
		before := time.Now()
		r := start(t, s).queue(t.Context())
		r.granted(t).Release()
		if waited := time.Since(before); waited > 0 {
			t.Errorf("granted after %v, want at once", waited)
		}
	})
}

// The queue changes for other reasons, too.
func TestChangeBehindAnUnreadablePredecessorIsNotTakenForItsEnd(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		node := secret(t, conn)
		r := start(t, s).queue(t.Context())
		start(t, s).queue(t.Context())
		if !r.waiting() {
			t.Errorf("after somebody joined: %v, %v, want it to wait for %s", r.node, r.err, node)
		}
		time.Sleep(2 * timeout) // and looked again, by the clock
		if !r.waiting() {
			t.Errorf("after a while: %v, %v, want it to wait for %s", r.node, r.err, node)
		}
		if err := conn.Delete(node, -1); err != nil {
			t.Fatal(err)
		}
		r.granted(t).Release()
	})
}

// Releases from 3.8.4 and 3.9.2 on say nothing at all of such a node, those before still
// that it exists.
func TestUnreadablePredecessorOnAServer(t *testing.T) {
	srv, ctx := realServer(t)
	conn, _, err := zk.Connect([]string{srv.Addr()}, 4*time.Second, zk.WithLogger(silent{}), zk.WithDialer(net.DialTimeout))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	node := secret(t, conn)
	p := connect(ctx, t, srv.Addr(), zklock.WithSessionTimeout(4*time.Second))
	r := p.enqueue(ctx, t, 2)
	queue, err := p.lock.Contenders(ctx)
	if err != nil || len(queue) != 2 || queue[0].Node != strings.TrimPrefix(node, path+"/") || queue[0].Kind != zkqueue.KindCurator {
		t.Errorf("Contenders: %+v, %v, want the unreadable node first", queue, err)
	}
	select {
	case <-r.done:
		t.Fatalf("Acquire behind an unreadable node: %v, %v, want it to wait", r.node, r.err)
	default:
	}
	if err := conn.Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	if <-r.done; r.err != nil {
		t.Fatal(r.err)
	}
	r.node.Release()
}
