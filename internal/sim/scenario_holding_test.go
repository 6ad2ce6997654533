package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

func TestHolding(t *testing.T) { runAll(t, holdingScenarios) }

var holdingScenarios = []scenario{
	{"41_expired_session_is_a_loss_and_release_harms_nobody", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		nested, err := p.locks.Mutex(lockPath).Acquire(holder.hold.Context(s.Context()))
		s.must(err)
		ctx := nested.Context(s.Context())
		waiter := q.queue(s.Context())
		s.srv.Expire(p.session())
		holder.lost(0)
		waiter.granted(0)
		if <-ctx.Done(); !errors.Is(context.Cause(ctx), tier.ErrLost) {
			s.Errorf("cause: %v, want a loss", context.Cause(ctx))
		}
		s.wantErr(nested.Release(), tier.ErrLost)
		s.wantErr(holder.release(), tier.ErrLost)
		time.Sleep(time.Second)
		waiter.keeps()
	})},

	{"42_disconnect_within_the_lease_suspends", play(func(s *scene) {
		p := s.join(role{})
		holder := p.acquire()
		p.unplug()
		time.Sleep(lease / 2)
		if !holder.hold.Suspended() {
			s.Error("not suspended while disconnected")
		}
		p.plug()
		time.Sleep(1100 * time.Millisecond) // the library pauses for a second when nobody answers
		if holder.hold.Suspended() {
			s.Error("suspended while connected")
		}
		holder.keeps()
		s.must(holder.release())
	})},

	{"43_lease_over_in_a_live_session_stays_lost", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		session := p.session()
		waiter := q.queue(s.Context())
		p.unplug()
		time.Sleep(lease + time.Second/2)
		p.plug()
		time.Sleep(time.Second)
		if p.session() != session {
			s.Error("the session did not survive")
		}
		holder.lost(0)
		s.wantErr(holder.release(), tier.ErrLost)
		waiter.granted(time.Second)
	})},

	{"44_own_node_deleted_by_others_is_a_loss", each(map[string]time.Duration{
		"held for long enough to be watched": sessionTimeout / 6,
		"right after the grant":              0,
	}, func(s *scene, held time.Duration) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		time.Sleep(held)
		if held == 0 {
			waiter.cancel() // it would be granted before the holder knows
		}
		s.must(s.admin().Delete(s.created[0], -1))
		holder.lost(sessionTimeout/6 - held)
		s.wantErr(holder.release(), tier.ErrLost)
		if held > 0 {
			waiter.granted(0)
			waiter.keeps()
		}
	})},

	{"46_uncertain_delete_is_no_error_and_ends_in_the_background", each(map[string]zktest.Direction{
		"not applied": zktest.Request, "reply lost": zktest.Reply,
	}, func(s *scene, at zktest.Direction) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		p.arm(fault.Fault{Op: "delete", At: at, Do: zktest.Cut, Times: 1})
		s.must(holder.release())
		waiter.granted(time.Second)
		next := p.queue(s.Context()) // the gate is open
		waiter.end()
		next.granted(0)
	})},

	{"47_release_does_not_wait_for_the_network", each(map[string]func(s *scene, p *actor){
		"disconnected": func(s *scene, p *actor) { p.unplug() },
		"mute":         func(s *scene, p *actor) { s.srv.Mute(p.session(), zktest.Reply) },
		"stopped": func(s *scene, p *actor) {
			p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Delay(time.Hour)})
		},
	}, func(s *scene, breakOff func(*scene, *actor)) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		breakOff(s, p)
		before := time.Now()
		s.must(holder.release())
		if took := time.Since(before); took > sessionTimeout/3 {
			s.Errorf("Release took %v", took)
		}
		s.heal()
		waiter.granted(bound)
	})},

	{"48_release_after_a_loss_deletes_nobody_elses_node", play(func(s *scene) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		last := r.queue(s.Context())
		s.srv.Expire(p.session())
		waiter.granted(time.Second)
		s.wantErr(holder.release(), tier.ErrLost)
		p.queue(s.Context()).cancel()
		time.Sleep(bound)
		waiter.keeps()
		last.waits()
	})},

	{"49_late_delete_spares_a_new_node_of_the_same_number", play(func(s *scene) {
		s.lateDelete()
	})},

	{"50_re_entry_needs_a_valid_lease", play(func(s *scene) {
		p := s.join(role{})
		holder := p.acquire()
		ctx := context.WithoutCancel(holder.hold.Context(s.Context()))
		mu := p.locks.Mutex(lockPath)
		p.unplug()
		time.Sleep(lease / 2)
		nested, err := mu.Acquire(ctx)
		s.must(err)
		time.Sleep(lease / 2)
		_, err = mu.Acquire(ctx)
		s.wantErr(err, tier.ErrLost)
		s.wantErr(nested.Release(), tier.ErrLost)
		s.wantErr(holder.release(), tier.ErrLost)
	})},

	{"51_release_too_many_sends_nothing_and_harms_nobody", play(func(s *scene) {
		p := s.join(role{})
		stale := p.acquire()
		s.must(stale.release())
		holder := p.acquire()
		before := len(s.asked())
		s.wantErr(stale.hold.Release(), tier.ErrReleased)
		if synctest.Wait(); len(s.asked()) != before {
			s.Errorf("sent %v", s.asked()[before:])
		}
		holder.keeps()
		p.queue(s.Context()).cancel()
	})},

	{"52_panic_in_the_section_releases", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		func() {
			defer func() { recover() }()
			p.locks.Mutex(lockPath).Do(s.Context(), func(ctx context.Context) error {
				return p.locks.Mutex(lockPath).Do(ctx, func(context.Context) error { panic("section") })
			})
			s.Error("no panic")
		}()
		q.start(s.Context()).granted(0).end()
		p.start(s.Context()).granted(0)
	})},

	{"53_close_is_a_loss_for_the_holder", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		nested, err := p.locks.Mutex(lockPath).Acquire(holder.hold.Context(s.Context()))
		s.must(err)
		waiter := q.queue(s.Context())
		p.locks.Close()
		holder.lost(0)
		s.wantErr(nested.Release(), tier.ErrLost, tier.ErrClosed)
		s.wantErr(holder.release(), tier.ErrLost, tier.ErrClosed)
		waiter.granted(0)
	})},

	{"54_hand_on_within_the_budget_and_with_a_valid_lease_only", play(func(s *scene) {
		const budget = time.Second
		p, q := s.join(role{tier: []tier.Option{tier.WithHandOff(budget)}}), s.join(role{})
		first, second := p.acquire(), p.queue(s.Context())
		third, fourth := p.queue(s.Context()), p.queue(s.Context())
		first.end()
		second.granted(0)
		if s.nodes() != 1 {
			s.Errorf("%d nodes for a hand-off", s.nodes())
		}
		other := q.queue(s.Context())
		time.Sleep(budget + time.Millisecond)
		second.end() // somebody has waited for as long as the budget allows
		other.granted(0)
		other.end()
		third.granted(0)
		p.unplug()
		time.Sleep(lease)
		third.lost(0).end()
		fourth.waits()
	})},

	{"55_waiters_do_not_inherit_a_loss", play(func(s *scene) {
		p := s.join(role{tier: []tier.Option{}})
		holder := p.acquire()
		waiter := p.queue(s.Context())
		s.srv.Expire(p.session())
		holder.lost(0)
		time.Sleep(bound)
		waiter.waits() // one section at a time in a process, lease or no lease
		s.wantErr(holder.release(), tier.ErrLost)
		waiter.granted(time.Second)
		if waiter.hold.Token() <= holder.hold.Token() {
			s.Errorf("token %d after %d", waiter.hold.Token(), holder.hold.Token())
		}
	})},

	{"56_shorter_timeout_from_another_server_counts_at_once", play(func(s *scene) {
		p := s.join(role{})
		holder := p.acquire()
		p.net.grant(3 * time.Second)
		s.srv.Cut(p.session())
		time.Sleep(10 * time.Millisecond)
		holder.keeps()
		p.unplug()
		holder.lost(2 * time.Second)
	})},
}
