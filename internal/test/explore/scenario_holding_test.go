package explore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
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
		<-ctx.Done()
		s.wantErr(context.Cause(ctx), tier.ErrLost)
		s.wantErr(nested.Release(), tier.ErrLost, reason)
		s.wantErr(holder.release(), tier.ErrLost, reason)
		time.Sleep(bound)
		waiter.keeps()
		last.waits()
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
}

// However the session ends, a holder learns of its loss before the server can give the lock to another process.
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
			s.background.Go(func() { // each write delays the client library, which detects the fault later
				for range 20 {
					s.admin().Set(s.created[0], nil, -1)
					time.Sleep(time.Second / 2)
				}
			})
		},
	}, func(s *scene, trouble func(*scene, *actor)) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		time.Sleep(sessionTimeout) // the holder has had the lock for a while
		waiter := q.queue(s.Context())
		trouble(s, p)
		select {
		case <-waiter.done:
		case <-time.After(bound):
			s.heal()
			waiter.granted(bound)
		}
		if synctest.Wait(); !need.Closed(holder.ended) || holder.until.After(waiter.since) {
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

// One of three servers hangs, as in a long garbage collection. The client library alone would wait for that server for 6.67 session
// timeouts, and the session would end.
func TestHungMemberDoesNotCostTheSession(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"short": 2 * time.Second, "usual": sessionTimeout, "long": 30 * time.Second} {
		t.Run(name, play(func(s *scene) {
			p := s.join(role{members: 3, zk: []zknode.Option{zknode.WithSessionTimeout(timeout)}})
			holder := p.acquire()
			session := p.session()
			for range 6 { // the member to which the process is connected hangs, and then the next member
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
