package explore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestWaiting(t *testing.T) { runAll(t, waitingScenarios) }

var waitingScenarios = []scenario{
	{"25_predecessor_gone_between_list_and_watch_is_no_wait_and_leaves_no_watch", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		for range 10 {
			holder := p.acquire()
			q.arm(fault.Fault{Op: "getData", At: zktest.Request, Times: 1,
				About:  at(s.created[len(s.created)-1]),
				Before: func(*zktest.Frame) { holder.end() }})
			q.start(s.Context()).granted(0).end()
		}
		synctest.Wait()
		need.AtMost(s, "watches are left", s.srv.Watches(), 1)
	})},

	{"28_grant_and_timeout_at_once_are_one_decision", each(map[string]string{
		"create": "create", "list": "getChildren2", "verify": "getData",
	}, func(s *scene, op string) {
		p := s.join(role{})
		lock, err := p.client.Lock(lockPath)
		s.must(err)
		const late = 100 * time.Millisecond
		p.arm(fault.Fault{Op: op, At: zktest.Reply, Do: zktest.Delay(late)})
		for range 20 { // the timers of the context and of the delay fire at the same instant
			ctx, cancel := context.WithTimeout(s.Context(), late)
			node, err := lock.Acquire(ctx)
			cancel()
			if err == nil {
				s.must(node.Release())
			}
			time.Sleep(time.Second)
			if left := s.srv.Children(lockPath); len(left) != 0 {
				s.Fatalf("after %v: left is %v", err, left)
			}
		}
	})},

	{"30_session_lost_while_waiting_queues_at_the_tail", play(func(s *scene) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		holder := p.acquire()
		second := q.queue(s.Context())
		third := r.queue(s.Context())
		s.srv.Expire(q.session())
		time.Sleep(time.Second)
		holder.end()
		third.granted(0)
		second.waits()
		third.end()
		second.granted(0)
	})},

	{"32_lost_watch_is_made_up_for", each(map[string]fault.Fault{
		"event lost":    {Op: "event", At: zktest.Reply, Do: zktest.Drop},
		"watch refused": {Op: "getData", At: zktest.Request, Do: fault.Refusal(wire.CodeOperationTimeout)},
	}, func(s *scene, loss fault.Fault) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		q.arm(loss)
		s.srv.Cut(q.session())
		time.Sleep(10 * time.Millisecond) // after that, q is connected again and has read the queue
		holder.end()
		waiter.granted(sessionTimeout * 3 / 2)
	})},

	{"33_cancelled_waiters_share_one_watch", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		p.acquire()
		before := q.requests("getData")
		for range 50 {
			waiter := q.queue(s.Context())
			waiter.cancel()
			synctest.Wait()
		}
		// Each waiter reads its own node with a watch. All waiters together need one more read with a watch, of their predecessor.
		need.Equal(s, "reads for 50 waiters", q.requests("getData")-before, 51)
		need.AtMost(s, "watches are left", s.srv.Watches(), 3)
	})},

	{"34_own_node_deleted_while_waiting_is_no_claim", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		s.must(s.admin().Delete(s.created[1], -1))
		time.Sleep(time.Second)
		waiter.waits()
		holder.end()
		waiter.granted(0)
	})},

	{"35_directory_deleted_while_waiting_is_created_again", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		time.Sleep(sessionTimeout / 6)
		s.deleteAll("/locks")
		holder.lost(time.Second)
		waiter.granted(time.Second)
	})},

	{"37_spurious_wake_and_disconnect_are_harmless", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiters := []*turn{q.queue(s.Context()), q.queue(s.Context()), q.queue(s.Context())}
		for range 20 {
			s.srv.Cut(q.session())
			waiters[0].waits()
			_, err := s.admin().Set(s.created[0], []byte("touched"), -1)
			s.must(err)
			waiters[0].waits()
		}
		need.Equal(s, "nodes were created", s.nodes(), 2)
		holder.end()
		waiters[0].granted(time.Second) // the grant may be late, because a read of the queue that met the last cut is repeated after a pause
	})},

	// A process that was stopped refuses the guarded write itself, before it reaches the store:
	// https://github.com/etcd-io/etcd/issues/11456.
	{"40_stopped_waiter_claims_nothing_when_it_continues", play(func(s *scene) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		lock, err := q.client.Lock(lockPath)
		s.must(err)
		for range 10 { // in some of these rounds, the periodic read of the queue falls into the pause
			holder := p.acquire()
			granted := make(chan *zknode.Node, 1)
			s.background.Go(func() {
				if node, err := lock.Acquire(s.Context()); err == nil {
					granted <- node
				}
			})
			synctest.Wait()
			q.net.stop()
			holder.end() // the stopped process cannot get this event yet
			other := r.acquire()
			q.net.resume()
			time.Sleep(sessionTimeout)
			other.keeps()
			if len(granted) != 0 {
				s.Fatalf("granted in spite of %v", (<-granted).Err())
			}
			other.end()
			s.must((<-granted).Release())
		}
	})},
}

func TestRequestsThatLeaveTogether(t *testing.T) { runAll(t, flightScenarios) }

var flightScenarios = []scenario{
	// The connection breaks sooner or later, because a stream cannot lose a single message.
	{"f1_list_answered_but_the_create_never_is_looked_up", play(func(s *scene) {
		p := s.join(role{})
		session := p.session()
		hole := p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Drop, Times: 1, Before: func(*zktest.Frame) {
			time.AfterFunc(time.Second, func() { s.srv.Cut(session) })
		}})
		p.acquire()
		need.Equal(s, "nodes were created", s.nodes(), 1)
		need.Equal(s, "times that the fault struck", hole.Struck(), 1)
	})},

	{"f3_list_overtaken_by_a_reconnect_and_a_departure", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		q.arm(fault.Fault{Op: "getChildren2", At: zktest.Reply, Do: zktest.Cut, Times: 1, Before: func(*zktest.Frame) { q.unplug() }})
		waiter := q.queue(s.Context())
		holder.end()
		waiter.waits()
		time.Sleep(time.Second)
		q.plug()
		waiter.granted(time.Second)
		need.Equal(s, "nodes were created", s.nodes(), 2)
	})},

	{"f4_create_answered_under_a_session_that_is_over_begins_anew", each(map[string]string{
		"before the list": "getChildren2", "before the watches": "getData",
	}, func(s *scene, op string) {
		p, q := s.join(role{}), s.join(role{})
		holder, session := q.acquire(), p.session()
		p.arm(fault.Fault{Op: op, At: zktest.Request, Do: zktest.Pass, Times: 1, Before: func(*zktest.Frame) { s.srv.Expire(session) }})
		waiter := p.queue(s.Context())
		time.Sleep(time.Second)
		holder.end()
		waiter.granted(time.Second).keeps()
		need.Equal(s, "nodes were created", s.nodes(), 3)
		s.srv.Expire(p.session()) // end the new session
		waiter.lost(time.Second)
	})},

	// The third process in the queue learns that both processes ahead have left, although it is disconnected while the second one leaves.
	{"f5_watches_in_flight_when_the_connection_breaks", each(map[string]zktest.Direction{
		"not sent": zktest.Request, "reply lost": zktest.Reply,
	}, func(s *scene, at zktest.Direction) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		first := p.acquire()
		second := q.queue(s.Context())
		r.arm(fault.Fault{Op: "getData", At: at, Do: zktest.Cut, Times: 1, Before: func(*zktest.Frame) { r.unplug() }})
		third := r.queue(s.Context())
		first.end()
		second.granted(0).end()
		third.waits()
		time.Sleep(time.Second)
		r.plug()
		third.granted(time.Second)
	})},

	// Without the guard, the session that owns a node is not compared with the present session (CURATOR-498).
	{"f6_create_without_an_answer_and_a_forged_expiry_make_a_second_node", play(func(s *scene) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
		forged := p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired), Times: 1})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1})
		u := p.start(s.Context())
		<-forged.Hit
		u.granted(bound).keeps()
		need.That(s, "the first node is that of the session", s.owners[s.created[0]] != p.session())
		need.Equal(s, "nodes were created", len(s.created), 2)
	})},
}
