package explore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/fault"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestServers(t *testing.T) { runAll(t, serverScenarios) }

var serverScenarios = []scenario{
	{"59_failed_write_of_credentials_does_not_wedge_the_client", play(func(s *scene) { // go-zookeeper issue 163
		p := s.join(role{zk: []zknode.Option{zknode.WithAuth("digest", []byte("user:secret"))}})
		holder := p.acquire()
		var failures atomic.Int32
		p.net.failWrites(func(frame []byte) bool {
			auth := len(frame) >= 12 && int32(frame[10])<<8|int32(frame[11]) == wire.OpSetAuth
			return auth && failures.Add(1) <= 2
		})
		s.srv.Cut(p.session())
		time.Sleep(time.Second * 2)
		if failures.Load() < 2 {
			s.Fatalf("%d failures, want 2", failures.Load())
		}
		holder.keeps()
		s.must(holder.release())
		p.acquire()
	})},

	{"60_wiped_ensemble_is_joined_anew", play(func(s *scene) {
		p := s.join(role{})
		s.admin().Set(lockPath, []byte("the ensemble grows old"), -1)
		holder := p.acquire()
		fresh := zktest.Start(s)
		p.net.move(fresh)
		s.srv.Expire(p.session())
		holder.lost(lease).end()
		ctx := s.in(10 * sessionTimeout)
		hold, err := p.locks.Mutex(lockPath).Acquire(ctx)
		if err != nil {
			s.Fatalf("Acquire: %v", err)
		}
		s.must(hold.Release())
		p.locks.Close()
	})},
}

func TestSessionAndClient(t *testing.T) { runAll(t, sessionScenarios) }

var sessionScenarios = []scenario{
	{"66_two_expiries_in_a_row_are_two", play(func(s *scene) {
		p := s.join(role{})
		holder := p.acquire()
		waiter := p.queue(s.Context())
		first := p.session()
		p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired), Times: 3})
		s.srv.Expire(first)
		holder.lost(time.Second).end()
		waiter.granted(bound).keeps()
		need.Equal(s, "granted to the session", s.owners[s.created[len(s.created)-1]], p.session())
		need.That(s, "the session is the first one", p.session() != first)
	})},

	{"67_session_id_used_again_is_another_session", play(func(s *scene) {
		p := s.join(role{})
		holder := p.acquire()
		old := p.session()
		fresh := zktest.Start(s)
		for range old - 1<<56 - 1 { // the new ensemble counts session ids from this value on
			conn := s.connectTo(fresh)
			for i := range 20 { // with these, the transaction number of the new ensemble exceeds that of the old one
				conn.Create(fmt.Sprintf("/x%d", i), nil, 0, zk.WorldACL(zk.PermAll))
			}
			conn.Close()
		}
		p.net.move(fresh)
		s.srv.Expire(old)
		holder.lost(time.Second)
		s.eventually(bound, "a new session of the old id", func() bool {
			sessions := fresh.Sessions()
			return len(sessions) == 1 && sessions[0].ID == old
		})
		s.wantErr(holder.release(), tier.ErrLost)
		next, err := p.locks.Mutex(lockPath).Acquire(s.in(bound))
		s.must(err)
		s.must(next.Release())
		p.locks.Close()
	})},

	{"69_stuck_call_is_the_only_one_and_ends_with_close", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Delay(3 * time.Second), Times: 1})
		for range 100 {
			p.start(s.in(10*time.Millisecond)).failed(10*time.Millisecond, errDeadline)
		}
		need.Equal(s, "creates are under way", p.requests("create"), 1)
		q.arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Drop})
		stuck := q.queue(s.Context())
		before := time.Now()
		q.locks.Close()
		stuck.failed(0, tier.ErrClosed)
		need.AtMost(s, "Close took", time.Since(before), 3*time.Second)
	})},

	{"72_retries_are_spread_and_do_not_end", play(func(s *scene) {
		p := s.join(role{})
		busy := p.arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Throttled})
		u := p.start(s.Context())
		const long = 30 * time.Minute // the backoff itself would stop after a quarter of an hour
		time.Sleep(long)
		u.waits()
		need.Between(s, "tries", busy.Struck(), int(long/(2*time.Second)), int(long/(400*time.Millisecond)))
		u.cancel()
		u.failed(0)
		busy.Lift()
	})},

	{"73_list_from_a_server_behind_is_no_claim", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{members: 2})
		holder := p.acquire()
		waiter := q.queue(s.Context())
		var laggard *zktest.Member
		for _, addr := range q.servers {
			if addr != q.member() {
				laggard = s.srv.Member(addr)
			}
		}
		laggard.Lag()
		s.srv.Member(q.member()).Refuse()
		s.srv.Member(q.member()).Cut()
		time.Sleep(time.Second)
		holder.end()
		waiter.waits()
		laggard.CatchUp()
		waiter.granted(time.Second)
	})},

	{"74_create_that_surfaces_after_an_election_is_adopted", play(func(s *scene) {
		p := s.join(role{members: 3})
		p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1, Before: func(*zktest.Frame) {
			p.unplug()
			for _, addr := range p.servers {
				s.srv.Member(addr).Lag()
			}
		}})
		u := p.start(s.Context())
		time.Sleep(2 * time.Second)
		u.waits()
		p.plug()
		u.granted(bound)
		need.Equal(s, "nodes were created", s.nodes(), 1)
	})},
}
