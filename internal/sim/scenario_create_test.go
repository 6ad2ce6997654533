package sim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zktest"
)

func TestBeforeAndAtCreate(t *testing.T) { runAll(t, createScenarios) }

var createScenarios = []scenario{
	{"01_cancelled_before_the_start_sends_nothing", play(func(s *scene) {
		p := s.join(role{})
		ctx := s.in(time.Second)
		time.Sleep(2 * time.Second)
		before := len(s.asked())
		_, err := p.locks.Mutex(lockPath).Acquire(ctx)
		s.wantErr(err, ctx.Err())
		if synctest.Wait(); len(s.asked()) != before {
			s.Errorf("sent %v", s.asked()[before:])
		}
		p.acquire()
	})},

	{"02_cancelled_at_the_gate_passes_the_turn_on", play(func(s *scene) {
		p := s.join(role{})
		for range 20 { // the order of the two is the scheduler's
			holder := p.acquire()
			second := p.queue(s.Context())
			third := p.queue(s.Context())
			second.cancel()
			holder.end()
			second.end()
			third.granted(bound).end()
		}
	})},

	{"03_cancelled_while_the_create_cannot_be_sent_leaves_nothing", each(map[string]func(s *scene, p *actor){
		"disconnected": func(s *scene, p *actor) { p.unplug() },
		"cut off when the create arrives": func(s *scene, p *actor) {
			p.arm(fault.Fault{Op: "create", At: zktest.Request, Before: func(*zktest.Frame) { p.unplug() }})
		},
	}, func(s *scene, breakOff func(*scene, *actor)) {
		p := s.join(role{})
		breakOff(s, p)
		p.start(s.in(time.Second)).failed(time.Second, errDeadline, zk.ErrNoServer)
		s.heal()
		time.Sleep(bound)
		if left := s.leftovers(); left != "" {
			s.Error(left)
		}
	})},

	{"04_cancelled_with_the_create_in_flight_deletes_the_node", each(map[string]zktest.Action{
		"answered late":  zktest.Delay(3 * time.Second),
		"answered never": zktest.Delay(time.Hour),
	}, func(s *scene, reply zktest.Action) {
		p, q := s.join(role{}), s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: reply, Times: 1})
		p.start(s.in(100*time.Millisecond)).failed(100*time.Millisecond, errDeadline)
		q.queue(s.Context()).granted(sessionTimeout)
		if s.nodes() != 2 {
			s.Errorf("%d nodes were created, want 2", s.nodes())
		}
	})},

	{"05_create_applied_reply_lost_is_adopted", play(func(s *scene) {
		p := s.join(role{})
		cut := p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1})
		p.acquire()
		if s.nodes() != 1 || cut.Struck() != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
	})},

	{"06_create_applied_reply_lost_is_adopted_through_a_lagging_server", play(func(s *scene) {
		p := s.join(role{members: 2})
		p.acquire().end()
		behindAll := s.fallBackToLaggard(p, "create")
		p.acquire()
		if s.nodes() != 2 || behindAll.Struck() != 1 {
			s.Errorf("%d nodes were created, want 2", s.nodes())
		}
	})},

	{"07_no_second_create_before_a_look_up_succeeds", each(map[string]fault.Fault{
		"write lost":    {Op: "multi", At: zktest.Reply, Do: zktest.Cut, Times: 5},
		"write refused": {Op: "multi", At: zktest.Request, Do: fault.Refusal(wire.CodeOperationTimeout), Times: 5},
		"listing lost":  {Op: "getChildren2", At: zktest.Request, Do: zktest.Cut, Times: 5},
		"no connection": {Op: "connect", At: zktest.Request, Do: zktest.Cut, Times: 5},
	}, func(s *scene, trouble fault.Fault) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1,
			Before: func(*zktest.Frame) { p.arm(trouble) }})
		p.acquire()
		if s.nodes() != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
	})},

	{"08_of_two_own_nodes_the_older_goes", play(func(s *scene) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1, Before: func(*zktest.Frame) {
			p.arm(fault.Fault{Op: "multi", At: zktest.Request, Do: zktest.Cut, Times: 3})
		}})
		p.start(s.in(5*time.Millisecond)).failed(5*time.Millisecond, errDeadline)
		p.acquire()
		if left := s.srv.Children(lockPath); len(left) != 1 || s.nodes() != 2 {
			s.Errorf("%d nodes were created, left is %v; want the newer of 2", s.nodes(), left)
		}
	})},

	{"09_create_run_under_a_new_session_is_bound_to_it", play(func(s *scene) {
		p := s.join(role{members: 3}) // the library forgets what is queued when it wraps its list
		const locks = 4
		path := func(i int) string { return fmt.Sprintf("/locks/queued-%d", i) }
		for i := range locks { // makes the parents
			p.acquireAt(path(i)).end()
		}
		old, before := p.session(), s.nodes()
		p.net.stall()
		var turns []*turn
		for i := range locks { // one fills the connection, the others queue behind it
			turns = append(turns, p.startAt(s.Context(), path(i)))
			synctest.Wait()
		}
		s.srv.Expire(old)
		synctest.Wait() // the connection is down before the write returns
		p.net.resume()
		for _, u := range turns {
			u.granted(bound).keeps()
		}
		if got := s.nodes() - before; got != locks {
			s.Errorf("%d nodes were created for %d locks", got, locks)
		}
		s.srv.Expire(p.session())
		for _, u := range turns {
			u.lost(time.Second)
		}
	})},

	{"10_create_in_flight_when_the_session_expires_begins_anew", each(map[string]zktest.Action{
		"dropped":  zktest.Pass,
		"answered": zktest.Error(zk.ErrSessionExpired),
	}, func(s *scene, fate zktest.Action) {
		p := s.join(role{})
		session := p.session()
		p.arm(fault.Fault{Op: "create", At: zktest.Request, Times: 1, Do: fate,
			Before: func(*zktest.Frame) { s.srv.Expire(session) }})
		p.acquire().keeps()
		if s.nodes() != 1 {
			s.Errorf("%d nodes were created, want 1", s.nodes())
		}
	})},

	{"11_node_of_the_own_old_session_is_waited_for", each(map[string]bool{
		"held": true, "waited": false,
	}, func(s *scene, held bool) {
		p, q := s.join(role{}), s.join(role{})
		// Nobody can delete the old node: it goes with its session.
		p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
		var other *turn
		if !held {
			other = q.acquire()
		}
		u := p.start(s.Context())
		synctest.Wait()
		old := p.session()
		s.forgeExpiry(p)
		if held {
			u.lost(time.Second).end()
			u = p.start(s.Context())
		} else {
			other.end()
		}
		time.Sleep(sessionTimeout / 2)
		u.waits()
		u.granted(bound)
		for _, sess := range s.srv.Sessions() {
			if sess.ID == old {
				s.Error("granted while the old session lives")
			}
		}
	})},
}

// fallBackToLaggard makes the process lose the reply of its next request of a kind; all
// that is left to it is a server that does not know of that request yet.
func (s *scene) fallBackToLaggard(p *actor, op string) *fault.Armed {
	s.Helper()
	at := p.member()
	for _, addr := range p.servers {
		if addr != at {
			s.srv.Member(addr).Lag()
		}
	}
	return p.arm(fault.Fault{Op: op, At: zktest.Reply, Do: zktest.Cut, Times: 1,
		Before: func(*zktest.Frame) { s.srv.Member(at).Refuse() }})
}

// forgeExpiry makes the process believe that its session has expired, while the session
// lives on.
func (s *scene) forgeExpiry(p *actor) {
	s.Helper()
	session := p.session()
	forged := p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired), Times: 1})
	s.srv.Cut(session)
	<-forged.Hit
}

var errDeadline = context.DeadlineExceeded
