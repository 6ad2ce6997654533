package sim_test

import (
	"testing"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

func TestRequestsThatLeaveTogether(t *testing.T) { runAll(t, flightScenarios) }

var flightScenarios = []scenario{
	// A stream has no holes: it breaks, sooner or later.
	{"f1_list_answered_but_the_create_never_is_looked_up", play(func(s *scene) {
		p := s.join(role{})
		session := p.session()
		hole := s.fault(fault{by: p, op: zktest.OpCreate, at: zktest.Reply, do: zktest.Drop, times: 1, first: func() {
			time.AfterFunc(time.Second, func() { s.srv.Cut(session) })
		}})
		p.acquire()
		if s.nodes() != 1 || s.struck(hole) != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
	})},

	{"f2_create_answered_but_the_list_never_is_listed_again", each(map[string]fault{
		"not sent":   {at: zktest.Request, do: zktest.Cut},
		"reply lost": {at: zktest.Reply, do: zktest.Cut},
		"refused":    {at: zktest.Request, do: zktest.Error(zktest.CodeThrottled)},
	}, func(s *scene, trouble fault) {
		p := s.join(role{})
		trouble.by, trouble.op, trouble.times = p, zktest.OpGetChildren2, 1
		overtaken := s.fault(trouble)
		u := p.acquire()
		if s.nodes() != 1 || s.struck(overtaken) != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
		u.keeps()
	})},

	{"f3_list_overtaken_by_a_reconnect_and_a_departure", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		holder := p.acquire()
		s.fault(fault{by: q, op: zktest.OpGetChildren2, at: zktest.Reply, do: zktest.Cut, times: 1, first: q.unplug})
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

	{"f4_create_answered_under_a_session_that_is_over_begins_anew", each(map[string]zktest.Op{
		"before the list": zktest.OpGetChildren2, "before the watches": zktest.OpGetData,
	}, func(s *scene, op zktest.Op) {
		p, q := s.join(role{}), s.join(role{})
		holder, session := q.acquire(), p.session()
		s.fault(fault{by: p, op: op, at: zktest.Request, do: zktest.Pass, times: 1, first: func() { s.srv.Expire(session) }})
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
	{"f5_watches_in_flight_when_the_connection_breaks", each(map[string]zktest.Stage{
		"not sent": zktest.Request, "reply lost": zktest.Reply,
	}, func(s *scene, at zktest.Stage) {
		p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
		first := p.acquire()
		second := q.queue(s.Context())
		s.fault(fault{by: r, op: zktest.OpGetData, at: at, do: zktest.Cut, times: 1, first: r.unplug})
		third := r.queue(s.Context())
		first.end()
		second.granted(0).end()
		third.waits()
		time.Sleep(time.Second)
		r.plug()
		third.granted(time.Second)
	})},
}
