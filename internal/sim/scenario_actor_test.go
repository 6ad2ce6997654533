package sim

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// An actor is a process in a scene, through members of the ensemble that serve nobody else.
type actor struct {
	process
	scene   *scene
	servers []string
	net     *network
}

// A role says what is special about a process.
type role struct {
	members int // of the ensemble that it knows; 1 if zero
	zk      []zklock.Option
	tier    []tier.Option // strict if nil
}

// strict makes each release give the node up.
var strict = []tier.Option{tier.WithHandOff(0)}

func (s *scene) join(r role) *actor {
	s.Helper()
	p := &actor{scene: s, net: newNetwork(s.srv)}
	for i := range max(r.members, 1) {
		p.servers = append(p.servers, fmt.Sprintf("127.1.%d.%d:2181", len(s.actors), i+1))
	}
	if r.tier == nil {
		r.tier = strict
	}
	s.mu.Lock()
	s.actors = append(s.actors, p)
	s.mu.Unlock()
	s.must(p.process.start(s.in(time.Minute), way{p.servers, p.net.dial}, r.zk, r.tier))
	s.Cleanup(func() { p.locks.Close() })
	s.Cleanup(p.net.resume)
	return p
}

func (p *actor) uses(member string) bool { return slices.Contains(p.servers, member) }

// session returns the process's live session; it is connected.
func (p *actor) session() int64 {
	p.scene.Helper()
	return p.connection().ID
}

// member returns the address of the member that the process is connected to.
func (p *actor) member() string {
	p.scene.Helper()
	return p.connection().Member
}

func (p *actor) connection() zktest.Session {
	p.scene.Helper()
	synctest.Wait()
	for _, sess := range p.scene.srv.Sessions() {
		if p.uses(sess.Member) {
			return sess
		}
	}
	p.scene.Fatalf("the process at %s has no session", p.servers[0])
	return zktest.Session{}
}

// unplug breaks the connection and all attempts to make another.
func (p *actor) unplug() {
	for _, addr := range p.servers {
		p.scene.srv.Member(addr).Refuse()
		p.scene.srv.Member(addr).Cut()
	}
}

func (p *actor) plug() {
	for _, addr := range p.servers {
		p.scene.srv.Member(addr).Accept()
	}
}
