package sim

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestHolding(t *testing.T) { runAll(t, holdingScenarios) }

var holdingScenarios = []scenario{
	{"41_end_of_the_session_is_a_loss_and_release_harms_nobody", each(map[string]bool{
		"expired": false, "closed": true,
	}, func(s *scene, closes bool) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		holder := p.acquire()
		nested, err := p.locks.Mutex(lockPath).Acquire(holder.hold.Context(s.Context()))
		s.must(err)
		ctx := nested.Context(s.Context())
		waiter, last := q.queue(s.Context()), r.queue(s.Context())
		reason := tier.ErrLost
		if closes {
			reason = tier.ErrClosed
			p.locks.Close()
		} else {
			s.srv.Expire(p.session())
		}
		holder.lost(0)
		waiter.granted(0)
		if <-ctx.Done(); !errors.Is(context.Cause(ctx), tier.ErrLost) {
			s.Errorf("cause: %v, want a loss", context.Cause(ctx))
		}
		s.wantErr(nested.Release(), tier.ErrLost, reason)
		s.wantErr(holder.release(), tier.ErrLost, reason)
		time.Sleep(bound)
		waiter.keeps()
		last.waits()
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

	{"49_late_delete_spares_a_new_node_of_the_same_number", play(func(s *scene) {
		p := s.join(role{})
		s.deleteAll(lockPath)
		first := p.acquire()
		late := p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
		s.must(first.release())
		s.deleteAll(lockPath)
		second := p.acquire()
		if a, b := s.created[0], s.created[1]; a[len(a)-10:] != b[len(b)-10:] || a == b {
			s.Fatalf("nodes %s and %s, want different ones of the same number", a, b)
		}
		if late.Lift(); p.reaping() != 1 {
			s.Fatalf("%d nodes to reap, want the first", p.reaping())
		}
		s.eventually(bound, "the first node is reaped", func() bool { return p.reaping() == 0 })
		second.keeps()
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

// A holder learns of its loss before the server can give the lock to somebody else,
// however the session ends.
func TestLossIsInTime(t *testing.T) {
	each(map[string]func(s *scene, p *actor){
		"mute to the server":               func(s *scene, p *actor) { s.srv.Mute(p.session(), zktest.Request) },
		"mute to the client":               func(s *scene, p *actor) { s.srv.Mute(p.session(), zktest.Reply) },
		"partition":                        partitionOf(time.Hour),
		"partition just below the timeout": partitionOf(sessionTimeout - time.Millisecond),
		"partition of the timeout":         partitionOf(sessionTimeout), // CURATOR-444
		"partition just above the timeout": partitionOf(sessionTimeout + time.Millisecond),
		"unplugged":                        func(s *scene, p *actor) { p.unplug() },
		"stopped":                          func(s *scene, p *actor) { p.net.stop() },
		"frozen member":                    func(s *scene, p *actor) { s.srv.Member(p.servers[0]).Freeze() },
		"frozen server": func(s *scene, p *actor) {
			s.srv.Freeze()
			time.AfterFunc(2*sessionTimeout, s.srv.Unfreeze)
		},
		"follower cut off":   func(s *scene, p *actor) { s.srv.Member(p.member()).Isolate() },
		"old leader goes on": func(s *scene, p *actor) { s.srv.Member(p.member()).Depose() },
		"link between servers flaps": func(s *scene, p *actor) {
			m := s.srv.Member(p.member())
			m.Isolate()
			time.Sleep(2 * time.Second)
			m.Glimpse(2)
		},
		"forged expiry": func(s *scene, p *actor) { s.forgeExpiry(p) },
		"forged expiry, node stays": func(s *scene, p *actor) {
			p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
			s.forgeExpiry(p)
		},
		"answers come late": func(s *scene, p *actor) {
			for _, op := range []string{"sync", "multi", "ping", "connect"} {
				p.arm(fault.Fault{Op: op, At: zktest.Reply, Do: zktest.Delay(sessionTimeout - time.Second)})
			}
		},
		"events keep coming": func(s *scene, p *actor) {
			for _, op := range []string{"sync", "multi", "ping"} {
				p.arm(fault.Fault{Op: op, At: zktest.Request, Do: zktest.Drop})
			}
			s.background.Go(func() { // each puts the library's own detection off
				for range 20 {
					s.admin().Set(s.created[0], nil, -1)
					time.Sleep(time.Second / 2)
				}
			})
		},
	}, func(s *scene, trouble func(*scene, *actor)) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		time.Sleep(sessionTimeout) // in the middle of a steady hold
		waiter := q.queue(s.Context())
		trouble(s, p)
		select {
		case <-waiter.done:
		case <-time.After(bound):
			s.heal()
			waiter.granted(bound)
		}
		if synctest.Wait(); !closed(holder.ended) || holder.until.After(waiter.since) {
			s.Errorf("granted at %v, the holder knew at %v", waiter.since, holder.until)
		}
	})(t)
}

func partitionOf(d time.Duration) func(*scene, *actor) {
	return func(s *scene, p *actor) {
		session := p.session()
		for _, dir := range []zktest.Direction{zktest.Request, zktest.Reply} {
			s.srv.Mute(session, dir)
			time.AfterFunc(d, func() { s.srv.Unmute(session, dir) })
		}
	}
}

// The same while the process hands its node on from goroutine to goroutine.
func TestLossIsInTimeBetweenHandOffs(t *testing.T) {
	play(func(s *scene) {
		p, q := s.join(role{tier: []tier.Option{tier.WithHandOff(time.Hour), tier.WithLinger(time.Hour)}}), s.join(role{})
		session := p.session()
		var stop atomic.Bool
		for range 3 {
			s.background.Go(func() {
				for !stop.Load() {
					u := p.start(s.in(bound))
					if <-u.done; u.err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond)
					u.release()
				}
			})
		}
		time.Sleep(time.Second)
		waiter := q.start(s.Context())
		time.Sleep(time.Second)
		s.srv.Mute(session, zktest.Request)
		waiter.granted(bound)
		stop.Store(true)
	})(t)
}

// One of three members hangs, as in a long garbage collection: the client library alone
// would wait for it for 6.67 session timeouts.
func TestHungMemberDoesNotCostTheSession(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"short": 2 * time.Second, "usual": sessionTimeout, "long": 30 * time.Second} {
		t.Run(name, play(func(s *scene) {
			p := s.join(role{members: 3, zk: []zklock.Option{zklock.WithSessionTimeout(timeout)}})
			holder := p.acquire()
			session := p.session()
			for range 6 { // the member it is with hangs, then the next one
				hung := s.srv.Member(p.member())
				hung.Freeze()
				time.Sleep(2 * timeout)
				if got := p.session(); got != session {
					s.Fatalf("session %#x became %#x", session, got)
				}
				hung.Unfreeze()
			}
			holder.end()
		}))
	}
}
