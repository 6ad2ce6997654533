package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestLimitsAndForeignNodes(t *testing.T) { runAll(t, limitScenarios) }

type refusal struct {
	op        string
	do        zktest.Action
	permanent bool
}

var limitScenarios = []scenario{
	{"17_auth_acl_needs_auth_and_has_it_after_a_reconnect", each(map[string]bool{
		"without": false, "with": true,
	}, func(s *scene, authenticated bool) {
		r := role{zk: []zklock.Option{zklock.WithACL(zk.AuthACL(zk.PermAll))}}
		if authenticated {
			r.zk = append(r.zk, zklock.WithAuth("digest", []byte("user:secret")))
		}
		p := s.join(r)
		if !authenticated {
			p.start(s.Context()).failed(0, zk.ErrInvalidACL)
			return
		}
		p.acquire().end()
		s.srv.Cut(p.session())
		p.acquire()
	})},

	{"18_refusals_are_permanent_or_retried_by_their_code", each(map[string]refusal{
		"quota exceeded":    {"create", fault.Refusal(wire.CodeQuotaExceeded), true},
		"throttled":         {"create", zktest.Throttled, false},
		"operation timeout": {"create", fault.Refusal(wire.CodeOperationTimeout), false},
		"bad arguments":     {"create", zktest.Error(zk.ErrBadArguments), true},
		"no containers":     {"createContainer", fault.Refusal(wire.CodeUnimplemented), false},
	}, func(s *scene, r refusal) {
		p := s.join(role{})
		s.deleteAll(lockPath)
		f := p.arm(fault.Fault{Op: r.op, At: zktest.Request, Do: r.do, Times: 3})
		u := p.start(s.Context())
		if r.permanent {
			u.failed(time.Second)
		} else {
			u.granted(time.Second)
		}
		if f.Struck() == 0 {
			s.Error("nothing was refused")
		}
	})},

	{"19_bad_paths_are_refused_without_a_request", play(func(s *scene) {
		p := s.join(role{})
		before := len(s.asked())
		for _, path := range []string{
			"", "a", "/", "/a/", "/a//b", "/a/./b", "/a/../b", "/zookeeper/x", "/a\x00b", "/a\x1fb", "/\xff",
			"/" + strings.Repeat("a", 2000),
		} {
			if _, err := p.locks.Mutex(path).Acquire(s.Context()); err == nil {
				s.Errorf("Acquire of %q succeeded", path)
			} else {
				s.wantErr(err, zk.ErrInvalidPath)
			}
		}
		if synctest.Wait(); len(s.asked()) != before {
			s.Errorf("sent %v", s.asked()[before:])
		}
	})},

	{"20_data_of_a_node_is_bounded", play(func(s *scene) {
		for _, n := range []int{256, 257, 1 << 20} {
			client, err := zklock.Dial(s.Context(), "127.1.9.1",
				zklock.WithDialContext(s.srv.DialContext), zklock.WithLabel(strings.Repeat("x", n)))
			if (err == nil) != (n <= 256) {
				s.Errorf("label of %d bytes: %v", n, err)
			}
			if err == nil {
				client.Close()
			}
		}
	})},

	{"21_node_exists_on_create_means_exhausted", play(func(s *scene) {
		p := s.join(role{})
		f := p.arm(fault.Fault{Op: "create", At: zktest.Request, Do: zktest.Error(zk.ErrNodeExists)})
		p.start(s.Context()).failed(0, zklock.ErrSequenceExhausted)
		f.Lift()
		p.acquire()
	})},

	{"22_sequence_near_its_end_negative_or_twice_is_refused", each(map[string]func(s *scene){
		"near its end": func(s *scene) { s.srv.SetSequence(lockPath, math.MaxInt32-100) },
		"at its end":   func(s *scene) { s.srv.SetSequence(lockPath, math.MaxInt32) },
		"negative":     func(s *scene) { s.foreign("_c_x-lock--2147483648") },
		"twice":        func(s *scene) { s.foreign("_c_x-lock-0000000001") },
	}, func(s *scene, wear func(*scene)) {
		p := s.join(role{})
		wear(s)
		p.start(s.Context()).failed(0, zklock.ErrSequenceExhausted)
		synctest.Wait()
		s.deleteAll(lockPath) // what the error asks for
		p.acquire()
	})},

	{"23_foreign_children_are_ignored", play(func(s *scene) {
		p := s.join(role{})
		for _, name := range []string{"readme", "lock", "lock-", "lock-1", "x-0000000000", "lease-0000000001", "lock-00000000000x"} {
			s.foreign(name)
		}
		p.acquire()
	})},

	{"24_a_queue_of_thousands_is_read", play(func(s *scene) {
		p := s.join(role{})
		for i := range 3000 {
			s.foreign(fmt.Sprintf("_c_x-lock-%010d", 1<<20+i))
		}
		p.acquire().end()
		s.deleteAll(lockPath)
	})},
}

// foreign creates a child of the lock's directory by another hand.
func (s *scene) foreign(name string) {
	s.Helper()
	_, err := s.admin().Create(lockPath+"/"+name, nil, 0, zk.WorldACL(zk.PermAll))
	s.must(err)
}
