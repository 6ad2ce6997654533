package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A process is a registry with a connection of its own, through members of the ensemble
// that serve nobody else.
type process struct {
	scene   *scene
	servers []string
	net     *network
	client  *zklock.Client
	locks   *tier.Registry
}

// A role says what is special about a process.
type role struct {
	members int // of the ensemble that it knows; 1 if zero
	zk      []zklock.Option
	tier    []tier.Option // strict if nil
}

func (s *scene) join(r role) *process {
	s.Helper()
	p := &process{scene: s, net: newNetwork(s.srv)}
	for i := range max(r.members, 1) {
		p.servers = append(p.servers, fmt.Sprintf("127.1.%d.%d:2181", len(s.processes), i+1))
	}
	opts := append([]zklock.Option{
		zklock.WithDialContext(p.net.dial), zklock.WithSessionTimeout(sessionTimeout),
	}, r.zk...)
	if r.tier == nil {
		r.tier = []tier.Option{tier.WithHandOff(0)}
	}
	s.mu.Lock()
	s.processes = append(s.processes, p)
	s.mu.Unlock()
	var err error
	p.client, err = zklock.Dial(s.in(time.Minute), strings.Join(p.servers, ","), opts...)
	s.must(err)
	s.Cleanup(func() { p.client.Close() })
	p.locks, err = tier.New(p.client.Tier(), r.tier...)
	s.must(err)
	s.Cleanup(func() { p.locks.Close() })
	s.Cleanup(p.net.resume)
	return p
}

func (p *process) uses(member string) bool { return slices.Contains(p.servers, member) }

// session returns the process's live session; it is connected.
func (p *process) session() int64 {
	p.scene.Helper()
	return p.connection().ID
}

// member returns the address of the member that the process is connected to.
func (p *process) member() string {
	p.scene.Helper()
	return p.connection().Member
}

func (p *process) connection() zktest.Session {
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
func (p *process) unplug() {
	for _, addr := range p.servers {
		p.scene.srv.Member(addr).Refuse()
		p.scene.srv.Member(addr).Cut()
	}
}

func (p *process) plug() {
	for _, addr := range p.servers {
		p.scene.srv.Member(addr).Accept()
	}
}
