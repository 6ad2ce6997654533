package sim

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestServers(t *testing.T) { runAll(t, serverScenarios) }

var serverScenarios = []scenario{
	{"57_single_server_is_tried_again_at_once", play(func(s *scene) {
		p := s.join(role{})
		for range 5 {
			s.srv.Cut(p.session())
			synctest.Wait()
			p.start(s.Context()).granted(0).end()
		}
	})},

	{"58_hung_server_does_not_cost_the_session", play(func(s *scene) {
		for frozen := range 3 {
			s.surviveFrozen(frozen)
		}
	})},

	{"59_failed_write_of_credentials_does_not_wedge_the_client", play(func(s *scene) {
		s.failReauthentication()
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

	{"61_moved_session_is_asked_again", each(map[string]string{
		"create": "create", "list": "getChildren2", "delete": "delete",
	}, func(s *scene, op string) {
		p, q := s.join(role{}), s.join(role{})
		moved := p.arm(fault.Fault{Op: op, At: zktest.Request, Do: zktest.Error(zk.ErrSessionMoved), Times: 2})
		p.acquire().end()
		q.acquire()
		if moved.Struck() == 0 {
			s.Error("nothing was refused")
		}
	})},

	{"62_no_quorum_is_transient", play(func(s *scene) {
		p := s.join(role{})
		down := p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Cut})
		s.srv.Cut(p.session())
		synctest.Wait()
		_, err := p.locks.Mutex(lockPath).TryAcquire(s.Context())
		s.wantErr(err, zk.ErrNoServer)
		u := p.start(s.Context())
		time.Sleep(time.Hour)
		u.waits()
		down.Lift()
		u.granted(2 * time.Second)
	})},

	{"63_refused_handshakes_are_named_in_the_error", play(func(s *scene) {
		p := s.join(role{})
		p.arm(fault.Fault{Op: "connect", At: zktest.Request, Do: zktest.Cut})
		s.srv.Cut(p.session())
		u := p.start(s.in(sessionTimeout))
		u.failed(sessionTimeout, errDeadline, zk.ErrNoServer)
		if !strings.Contains(u.err.Error(), "maxClientCnxns") {
			s.Errorf("error: %v; want a hint at maxClientCnxns", u.err)
		}
	})},
}

// surviveFrozen has a process of three members fall from one server to the next while
// one of them is frozen.
func (s *scene) surviveFrozen(frozen int) {
	p := s.join(role{members: 3})
	s.srv.Member(p.servers[frozen]).Freeze()
	holder := p.acquireAt(fmt.Sprintf("/locks/frozen-%d", frozen))
	session := p.session()
	for range 4 { // each time around the list meets the frozen one
		s.srv.Cut(session)
		time.Sleep(sessionTimeout)
		holder.keeps()
		if got := p.session(); got != session {
			s.Fatalf("session %#x became %#x", session, got)
		}
	}
	holder.end()
}

// failReauthentication breaks the connection at the moment at which the client presents
// its credentials again.
func (s *scene) failReauthentication() {
	p := s.join(role{zk: []zklock.Option{zklock.WithAuth("digest", []byte("user:secret"))}})
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
}
