package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// The bugs of other locks and clients. The comment above each names the guard whose
// removal makes it fail.
func TestBugsOfOthers(t *testing.T) {
	runAll(t, []scenario{
		// Guard: socket.Write never fails.
		{"go-zookeeper_163_failed_reauthentication_wedges_the_client", play(func(s *scene) {
			s.failReauthentication()
		})},

		// Guard: lookUp gives up to the reaper.
		{"samuel_229_connection_loss_leaves_an_orphan", play(func(s *scene) {
			p, q := s.join(role{}), s.join(role{})
			p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1, Before: func(*zktest.Frame) {
				p.arm(fault.Fault{Op: "sync", At: zktest.Request, Do: zktest.Cut, Times: 3})
			}})
			p.start(s.in(5*time.Millisecond)).failed(5*time.Millisecond, errDeadline)
			q.start(s.Context()).granted(time.Second)
		})},

		// Guard: the lease ends holds.
		{"CURATOR-444_partition_of_exactly_the_timeout_makes_two_leaders", each(map[string]time.Duration{
			"a little less": sessionTimeout - time.Millisecond,
			"exactly":       sessionTimeout,
			"a little more": sessionTimeout + time.Millisecond,
		}, func(s *scene, partition time.Duration) {
			p, q := s.join(role{}), s.join(role{})
			holder := p.acquire()
			waiter := q.queue(s.Context())
			session := p.session()
			s.srv.Mute(session, zktest.Request)
			s.srv.Mute(session, zktest.Reply)
			time.Sleep(partition)
			s.srv.Unmute(session, zktest.Request)
			s.srv.Unmute(session, zktest.Reply)
			waiter.granted(bound)
			holder.lost(0)
		})},

		// Guard: only what proves a quorum renews the lease.
		{"CURATOR-444_follower_cut_off_from_the_leader_makes_two_leaders", play(func(s *scene) {
			p, q := s.join(role{}), s.join(role{})
			holder := p.acquire()
			waiter := q.queue(s.Context())
			s.srv.Member(p.member()).Isolate()
			waiter.granted(bound)
			holder.lost(0)
		})},

		// Guard: a node's owner is compared.
		{"CURATOR-498_node_of_the_old_session_is_taken_for_ones_own", play(func(s *scene) {
			p := s.join(role{})
			p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
			forged := p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Error(zk.ErrSessionExpired), Times: 1})
			p.arm(fault.Fault{Op: "create", At: zktest.Reply, Do: zktest.Cut, Times: 1})
			u := p.start(s.Context())
			<-forged.Hit
			u.granted(bound).keeps()
			if owner := s.owners[s.created[0]]; owner == p.session() || len(s.created) != 2 {
				s.Errorf("nodes %v", s.created)
			}
		})},

		// Guard: queueing nodes end with session.
		{"CURATOR-604_lock_is_acquired_on_the_old_sessions_node", play(func(s *scene) {
			p, q := s.join(role{}), s.join(role{})
			p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
			holder := q.acquire()
			waiter := p.queue(s.Context())
			old := p.session()
			s.forgeExpiry(p)
			holder.end() // the old node is the head of the queue now
			time.Sleep(time.Second)
			waiter.waits()
			waiter.granted(bound)
			if owner := s.owners[s.created[len(s.created)-1]]; owner == old {
				s.Error("granted on the node of the old session")
			}
		})},

		// Guard: session end loses holds.
		{"CURATOR-696_old_sessions_node_makes_a_second_leader", play(func(s *scene) {
			p, q := s.join(role{}), s.join(role{})
			p.arm(fault.Fault{Op: "delete", At: zktest.Request, Do: zktest.Throttled})
			holder := p.acquire()
			waiter := q.queue(s.Context())
			s.forgeExpiry(p)
			holder.lost(0).end()
			again := p.queue(s.Context())
			waiter.granted(bound) // when the old session ends
			again.waits()
		})},

		// Guard: hold checks the lease.
		{"etcd_11456_grant_without_a_look_at_the_lease", play(func(s *scene) {
			p, q, r := s.join(role{}), s.join(role{}), s.join(role{})
			lock, err := q.client.Lock(lockPath)
			s.must(err)
			for range 10 { // now and then the periodic look comes in between
				holder := p.acquire()
				granted := make(chan *zklock.Node, 1)
				s.background.Go(func() {
					if node, err := lock.Acquire(s.Context()); err == nil {
						granted <- node
					}
				})
				synctest.Wait()
				q.net.stop()
				holder.end() // the event waits in front of the stopped process
				other := r.acquire()
				q.net.resume()
				time.Sleep(sessionTimeout)
				other.keeps()
				if len(granted) != 0 {
					s.Fatalf("granted in spite of %v", (<-granted).Err())
				}
				other.end()
				s.must((<-granted).Release())
			}
		})},

		// Guard: each attempt's own uuid.
		{"etcd_22082_stale_unlock_deletes_a_newer_lock", play(func(s *scene) { s.lateDelete() })},

		// Guard: stand refuses worn numbers.
		{"kazoo_730_sequence_overflow_makes_two_owners", play(func(s *scene) {
			p, q := s.join(role{}), s.join(role{})
			s.srv.SetSequence(lockPath, 1<<31-2)
			for _, process := range []*actor{p, q, p, q} {
				process.start(s.Context()).failed(0, zklock.ErrSequenceExhausted)
			}
			synctest.Wait()
			s.deleteAll(lockPath)
			p.acquire()
			q.queue(s.Context())
		})},
	})
}

// lateDelete holds up the delete of a node until the directory has been made anew and
// the process has got a node of the same number there.
func (s *scene) lateDelete() {
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
}
