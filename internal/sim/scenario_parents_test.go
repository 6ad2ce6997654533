package sim

import (
	"testing"
	"testing/synctest"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/fault"
	"github.com/tierlock/tierlock/zktest"
)

func TestParentsAndPermissions(t *testing.T) { runAll(t, parentScenarios) }

var parentScenarios = []scenario{
	{"12_missing_parents_are_created", each(map[string]func(s *scene, p *actor){
		"never there": func(s *scene, p *actor) { s.deleteAll("/locks") },
		"reaped right before the create": func(s *scene, p *actor) {
			p.arm(fault.Fault{Op: "create", At: zktest.Request, Times: 1, Before: func(*zktest.Frame) {
				s.must(s.admin().Delete(lockPath, -1))
			}})
		},
		"reaped again and again": func(s *scene, p *actor) {
			p.arm(fault.Fault{Op: "create", At: zktest.Request, Times: 8,
				Do: zktest.Error(zk.ErrNoNode)})
		},
	}, func(s *scene, prepare func(*scene, *actor)) {
		p := s.join(role{})
		prepare(s, p)
		p.acquire()
	})},

	{"13_ephemeral_ancestor_is_permanent", play(func(s *scene) {
		p := s.join(role{})
		s.deleteAll("/locks")
		_, err := s.admin().Create("/locks", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		s.must(err)
		first, second := p.start(s.Context()), p.start(s.Context())
		first.failed(0, zk.ErrNoChildrenForEphemerals)
		second.failed(0, zk.ErrNoChildrenForEphemerals)
		s.must(s.admin().Delete("/locks", -1))
	})},

	{"14_no_permission_is_permanent", each(map[string]string{
		"to create the parent": "createContainer",
		"to create the node":   "create",
		"to list":              "getChildren2",
	}, func(s *scene, op string) {
		p := s.join(role{})
		s.deleteAll(lockPath)
		p.arm(fault.Fault{Op: op, At: zktest.Request, Do: zktest.Error(zk.ErrNoAuth)})
		p.start(s.Context()).failed(0, zk.ErrNoAuth)
		if synctest.Wait(); s.leftovers() != "" {
			s.Error(s.leftovers())
		}
	})},

	{"15_no_permission_to_delete_is_told_at_release", play(func(s *scene) {
		p, q := s.join(role{}), s.join(role{})
		s.dirWithout(zk.PermDelete)
		u := p.acquire()
		err := u.release()
		s.wantErr(err, zk.ErrNoAuth)
		waiting := q.queue(s.Context())
		p.locks.Close()
		waiting.granted(bound)
		q.locks.Close()
		s.dirWithout(0)
	})},

	{"16_no_permission_to_list_leaves_no_node", play(func(s *scene) {
		p := s.join(role{})
		s.dirWithout(zk.PermRead)
		p.start(s.Context()).failed(0, zk.ErrNoAuth)
		if synctest.Wait(); s.leftovers() != "" || s.nodes() != 1 {
			s.Errorf("%d created, left: %s", s.nodes(), s.leftovers())
		}
		s.dirWithout(0)
	})},
}

// dirWithout gives the lock's directory an ACL that lacks a permission.
func (s *scene) dirWithout(perm int32) {
	s.Helper()
	_, err := s.admin().SetACL(lockPath, zk.WorldACL(zk.PermAll&^perm), -1)
	s.must(err)
}

// deleteAll is the operator's recursive delete.
func (s *scene) deleteAll(path string) {
	s.Helper()
	for _, name := range s.srv.Children(path) {
		s.deleteAll(path + "/" + name)
	}
	s.must(s.admin().Delete(path, -1))
}
