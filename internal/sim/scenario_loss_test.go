package sim

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A holder learns of its loss before the server can give the lock to somebody else,
// however the session ends.
func TestLossIsInTime(t *testing.T) {
	each(map[string]func(s *scene, p *actor){
		"mute to the server": func(s *scene, p *actor) { s.srv.Mute(p.session(), zktest.Request) },
		"mute to the client": func(s *scene, p *actor) { s.srv.Mute(p.session(), zktest.Reply) },
		"partition": func(s *scene, p *actor) {
			session := p.session()
			s.srv.Mute(session, zktest.Request)
			s.srv.Mute(session, zktest.Reply)
		},
		"unplugged":     func(s *scene, p *actor) { p.unplug() },
		"stopped":       func(s *scene, p *actor) { p.net.stop() },
		"frozen member": func(s *scene, p *actor) { s.srv.Member(p.servers[0]).Freeze() },
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
		"requests are lost": func(s *scene, p *actor) {
			for _, op := range []string{"sync", "multi", "ping"} {
				p.arm(fault.Fault{Op: op, At: zktest.Request, Do: zktest.Drop})
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
		"shorter timeout, then unplugged": func(s *scene, p *actor) {
			p.net.grant(3 * time.Second)
			s.srv.Cut(p.session())
			time.Sleep(time.Millisecond)
			p.unplug()
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
