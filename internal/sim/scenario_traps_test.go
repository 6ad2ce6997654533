package sim

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// The traps that this design's ancestor fell into, numbered as its reviewers did.
func TestTrapsOfTheAncestor(t *testing.T) { runAll(t, trapScenarios) }

var trapScenarios = []scenario{
	// Guard: try settles the cohort.
	{"o1_failed_try_keeps_the_gate_and_leaves_a_node", each(map[string]string{
		"create": "create", "list": "getChildren2",
	}, func(s *scene, op string) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: op, At: zktest.Request, Do: zktest.Error(zk.ErrNoAuth), Times: 1,
			Before: func(*zktest.Frame) { time.Sleep(time.Second) }})
		s.background.Go(func() {
			_, err := p.locks.Mutex(lockPath).TryAcquire(s.Context())
			s.wantErr(err, zk.ErrNoAuth)
		})
		synctest.Wait()
		p.queue(s.Context()).granted(time.Second) // came while the try was under way
	})},

	// Guard: deliver makes cohort idle.
	{"o2_failed_lock_keeps_the_gate", play(func(s *scene) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Error(zk.ErrNoAuth), Times: 20})
		for range 8 { // so that one comes back before the others have gone
			s.background.Go(func() {
				for s.Context().Err() == nil {
					u := p.start(s.Context())
					if <-u.done; u.err == nil {
						u.release()
						return
					}
					s.wantErr(u.err, zk.ErrNoAuth)
				}
			})
		}
		s.background.Wait()
	})},

	// Guard: holds are counted.
	{"o3_first_of_two_unlocks_deletes_the_node", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		nested, err := p.locks.Mutex(lockPath).Acquire(holder.hold.Context(s.Context()))
		s.must(err)
		waiter := q.queue(s.Context())
		s.must(nested.Release())
		waiter.waits()
		holder.end()
		waiter.granted(0)
	})},

	// Guard: failed delete settles node.
	{"o4_failed_delete_keeps_the_gate", each(map[string]zktest.Action{
		"cut": zktest.Cut, "refused": zktest.Throttled, "forbidden": zktest.Error(zk.ErrNoAuth),
	}, func(s *scene, fate zktest.Action) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: fate, Times: 1})
		first, second := p.acquire(), p.queue(s.Context())
		first.release()
		second.granted(bound)
	})},

	// Guard: released holds stay released.
	{"o5_unlock_of_somebody_else_deletes_the_node", play(func(s *scene) {
		p := s.join(role{})
		stale := p.acquire()
		stale.end()
		holder := p.acquire()
		s.wantErr(stale.hold.Release(), tier.ErrReleased)
		p.queue(s.Context()).cancel()
		holder.keeps()
	})},

	// Guard: unparsable names are foreign.
	{"o6_unparsable_number_sorts_first", play(func(s *scene) {
		p := s.join(role{})
		for _, name := range []string{"lock-", "x", "_c_1-lock-99999999999999999999x", "lock-2147483648"} {
			s.foreign(name)
		}
		p.start(s.Context()).granted(0)
	})},

	// Guard: watch by get, not exists.
	{"o7_vanished_predecessor_leaves_a_watch", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		for range 10 {
			holder := p.acquire()
			node := s.created[len(s.created)-1]
			q.arm(fault.Fault{Op: "getData", At: zktest.Request, Times: 1,
				About: at(node), Before: func(*zktest.Frame) { holder.end() }})
			q.start(s.Context()).granted(0).end()
		}
		if synctest.Wait(); s.srv.Watches() > 1 {
			s.Errorf("%d watches are left", s.srv.Watches())
		}
	})},

	// Guard: only deletion means alone.
	{"o8_disconnect_wakes_the_waiter_as_if_it_were_granted", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		p.acquire()
		waiter := q.queue(s.Context())
		for range 5 {
			s.srv.Cut(q.session())
			waiter.waits()
			s.admin().Set(s.created[0], nil, -1)
			waiter.waits()
		}
	})},

	// Guard: an abandoned attempt undoes itself.
	{"o9_interrupted_wait_leaks_node_and_gate", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		waiter.cancel()
		waiter.failed(0, context.Canceled)
		if synctest.Wait(); len(s.srv.Children(lockPath)) != 1 {
			s.Errorf("queue: %v", s.srv.Children(lockPath))
		}
		holder.end()
		q.start(s.Context()).granted(0)
	})},

	// Guard: reconnecting rings the waiters.
	{"o10_restart_that_loses_the_watches_deadlocks", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		q.arm(fault.Fault{Op: "setWatches", At: zktest.Request, Do: fault.Refusal(wire.CodeOperationTimeout)})
		q.unplug()
		holder.end()
		q.plug()
		waiter.granted(1100 * time.Millisecond) // the library pauses for a second when nobody answers
	})},

	// Guard: re-entry asks the node.
	{"o11_lost_lock_still_counts_as_owned", play(func(s *scene) {
		p := s.join(role{})
		holder := p.acquire()
		ctx := context.WithoutCancel(holder.hold.Context(s.Context()))
		s.srv.Expire(p.session())
		holder.lost(0)
		_, err := p.locks.Mutex(lockPath).Acquire(ctx)
		s.wantErr(err, tier.ErrLost)
	})},

	// Guard: uncertain creates are looked up.
	{"o12_uncertain_create_leaves_an_orphan", each(map[string]zktest.Direction{
		"not applied": zktest.Request, "reply lost": zktest.Reply,
	}, func(s *scene, at zktest.Direction) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "create", At: at, Do: zktest.Cut, Times: 1})
		p.acquire().end()
		if synctest.Wait(); len(s.srv.Children(lockPath)) != 0 || s.nodes() != 1 {
			s.Errorf("created %v, left %v", s.created, s.srv.Children(lockPath))
		}
	})},

	// Guard: errors belong to attempts.
	{"o13_error_of_one_attempt_fails_the_next", play(func(s *scene) {
		p := s.join(role{})
		for range 3 {
			p.arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Error(zk.ErrInvalidACL), Times: 1})
			p.start(s.Context()).failed(0, zk.ErrInvalidACL)
			p.start(s.Context()).granted(0).end()
		}
	})},

	// Guard: the gate orders memory.
	{"o14_shared_fields_race", play(func(s *scene) { s.sharedCounter(3, 10) })},

	// Guard: one courier per cohort.
	{"o15_event_and_caller_both_create", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiters := []*turn{q.queue(s.Context()), q.queue(s.Context()), q.queue(s.Context())}
		for range 5 {
			s.srv.Cut(q.session())
			s.admin().Set(s.created[0], nil, -1)
			synctest.Wait()
		}
		if s.nodes() != 2 {
			s.Errorf("%d nodes were created, want 2", s.nodes())
		}
		holder.end()
		waiters[0].granted(0)
	})},

	// Guard: the attempt's context is checked.
	{"o16_late_watch_after_a_cancel_takes_the_lock_for_nobody", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		q.arm(fault.Fault{Op: "event", At: zktest.Reply, Do: zktest.Delay(time.Second)})
		waiter := q.queue(s.Context())
		holder.end() // the event is under way
		waiter.cancel()
		waiter.failed(0, context.Canceled)
		time.Sleep(bound)
		if synctest.Wait(); s.nodes() != 2 || len(s.srv.Children(lockPath)) != 0 {
			s.Errorf("created %v, left %v", s.created, s.srv.Children(lockPath))
		}
	})},
}

// sharedCounter is written under the lock by many goroutines; the race detector watches.
func (s *scene) sharedCounter(processes, goroutines int) {
	counter := 0
	var wg sync.WaitGroup
	for range processes {
		p := s.join(role{tier: []tier.Option{}})
		for range goroutines {
			wg.Go(func() {
				err := p.locks.Mutex(lockPath).Do(s.Context(), func(context.Context) error {
					counter++
					return nil
				})
				if err != nil {
					s.Error(err)
				}
			})
		}
	}
	if wg.Wait(); counter != processes*goroutines {
		s.Errorf("counted to %d, want %d", counter, processes*goroutines)
	}
}
