package sim

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestWaiting(t *testing.T) { runAll(t, waitingScenarios) }

var waitingScenarios = []scenario{
	{"25_predecessor_gone_between_list_and_watch_is_no_wait", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		node := s.created[0]
		q.arm(fault.Fault{Op: "getData", At: zktest.Request, Times: 1,
			About:  at(node),
			Before: func(*zktest.Frame) { holder.end() }})
		q.start(s.Context()).granted(0)
	})},

	{"26_death_in_the_middle_of_the_queue_is_no_grant", play(func(s *scene) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		holder := p.acquire()
		middle := q.queue(s.Context())
		last := r.queue(s.Context())
		q.unplug()
		s.srv.Expire(s.owners[s.created[1]])
		last.waits()
		time.Sleep(bound)
		last.waits()
		holder.end()
		last.granted(0)
		middle.cancel()
	})},

	{"27_watch_and_cancel_at_once_are_one_decision", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		for range 20 {
			holder := p.acquire()
			waiter := q.queue(s.Context())
			go waiter.cancel()
			holder.end()
			waiter.end()
			synctest.Wait()
			if left := s.srv.Children(lockPath); len(left) != 0 {
				s.Fatalf("left: %v", left)
			}
		}
	})},

	{"28_grant_and_timeout_at_once_are_one_decision", each(map[string]string{
		"create": "create", "list": "getChildren2", "verify": "getData",
	}, func(s *scene, op string) {
		p := s.join(role{})
		lock, err := p.client.Lock(lockPath)
		s.must(err)
		const late = 100 * time.Millisecond
		p.arm(fault.Fault{Op: op, At: zktest.Reply, Do: zktest.Delay(late)})
		for range 20 { // both timers fire at the same instant
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

	{"29_deletion_during_a_disconnect_is_noticed_after_it", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		q.unplug()
		holder.end()
		waiter.waits()
		time.Sleep(time.Second)
		q.plug()
		waiter.granted(time.Second)
		if s.nodes() != 2 {
			s.Errorf("%d nodes were created, want 2", s.nodes())
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

	{"31_partition_beyond_the_session_while_waiting_begins_anew", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		session := q.session()
		s.srv.Mute(session, zktest.Request)
		s.srv.Mute(session, zktest.Reply)
		time.Sleep(2 * sessionTimeout)
		holder.end()
		waiter.waits()
		s.srv.Unmute(session, zktest.Request)
		s.srv.Unmute(session, zktest.Reply)
		waiter.granted(bound)
		if owner := s.owners[s.created[len(s.created)-1]]; owner == session {
			s.Error("granted to the session that expired")
		}
	})},

	{"32_lost_watch_is_made_up_for", each(map[string]fault.Fault{
		"event lost":        {Op: "event", At: zktest.Reply, Do: zktest.Drop},
		"set watches fails": {Op: "setWatches", At: zktest.Request, Do: fault.Refusal(wire.CodeOperationTimeout)},
	}, func(s *scene, loss fault.Fault) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		q.arm(loss)
		s.srv.Cut(q.session())
		time.Sleep(10 * time.Millisecond) // reconnected, and looked
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
		// One read with a watch for each own node, and one for the predecessor of all.
		if got := q.requests("getData") - before; got != 51 {
			s.Errorf("%d reads for 50 waiters, want 51", got)
		}
		if got := s.srv.Watches(); got > 3 {
			s.Errorf("%d watches are left", got)
		}
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

	{"37_spurious_wake_is_harmless", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		for range 20 {
			_, err := s.admin().Set(s.created[0], []byte("touched"), -1)
			s.must(err)
			waiter.waits()
		}
		holder.end()
		waiter.granted(0)
		if s.nodes() != 2 {
			s.Errorf("%d nodes were created, want 2", s.nodes())
		}
	})},

	{"38_death_of_the_holder_wakes_one_waiter", play(func(s *scene) {
		p := s.join(role{})
		p.acquire()
		var waiters []*turn
		for range 8 {
			waiters = append(waiters, s.join(role{}).queue(s.Context()))
		}
		before := len(s.asked())
		p.unplug()
		s.srv.Expire(s.owners[s.created[0]])
		waiters[0].granted(0)
		if woken := s.asked()[before:]; len(woken) > 1 {
			s.Errorf("the death caused %d requests: %v", len(woken), woken)
		}
	})},

	{"39_close_while_waiting_turns_everybody_away", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		first, second := q.queue(s.Context()), q.queue(s.Context())
		other := q.startAt(s.Context(), otherPath)
		other.granted(0)
		created := s.nodes()
		q.locks.Close()
		first.failed(0, tier.ErrClosed)
		second.failed(0, tier.ErrClosed)
		holder.end()
		if _, err := q.locks.Mutex(lockPath).Acquire(s.Context()); s.nodes() != created {
			s.Errorf("a closed registry created a node: %v", err)
		} else {
			s.wantErr(err, tier.ErrClosed)
		}
	})},

	{"40_stopped_waiter_claims_nothing_when_it_continues", play(func(s *scene) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		q.net.stop()
		time.Sleep(time.Second)
		holder.end() // the event is the first that the waiter sees when it continues
		time.Sleep(2 * sessionTimeout)
		other := r.acquire()
		q.net.resume()
		time.Sleep(time.Second)
		waiter.waits()
		other.keeps()
		other.end()
		waiter.granted(bound)
	})},
}
