package sim

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/zktest"
)

func TestRequestsThatLeaveTogether(t *testing.T) { runAll(t, flightScenarios) }

var flightScenarios = []scenario{
	// A stream has no holes: it breaks, sooner or later.
	{"f1_list_answered_but_the_create_never_is_looked_up", play(func(s *scene) {
		p := s.join(role{})
		session := p.session()
		hole := p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Drop, Times: 1, Before: func(*zktest.Frame) {
			time.AfterFunc(time.Second, func() { s.srv.Cut(session) })
		}})
		p.acquire()
		if s.nodes() != 1 || hole.Struck() != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
	})},

	{"f2_create_answered_but_the_list_never_is_listed_again", each(map[string]fault.Fault{
		"not sent":   {At: zktest.Request, Do: zktest.Cut},
		"reply lost": {At: zktest.Reply, Do: zktest.Cut},
		"refused":    {At: zktest.Request, Do: zktest.Throttled},
	}, func(s *scene, trouble fault.Fault) {
		p := s.join(role{})
		trouble.Op, trouble.Times = "getChildren2", 1
		overtaken := p.arm(trouble)
		u := p.acquire()
		if s.nodes() != 1 || overtaken.Struck() != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
		u.keeps()
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
		if s.nodes() != 2 {
			s.Errorf("%d nodes were created, want 2", s.nodes())
		}
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
		if s.nodes() != 3 {
			s.Errorf("%d nodes were created, want 3", s.nodes())
		}
		s.srv.Expire(p.session()) // the new one
		waiter.lost(time.Second)
	})},

	// The third in line learns of all departures, the last of which happens while it is away.
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
}
