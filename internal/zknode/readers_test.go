package zknode_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// process.as returns the process with the same lock in another mode.
func (p process) as(m second.Mode) process {
	p.lock = p.lock.Mode(m)
	return p
}

func (p process) reading() process { return p.as(second.Reading) }
func (p process) writing() process { return p.as(second.Writing) }

func TestReadersAndWritersArePairsForKazoo(t *testing.T) {
	for mode, want := range map[second.Mode][2]string{
		second.Writing: {"-__WRIT__0000000000", "-__lock__0000000001"},
		second.Reading: {"-__READ__0000000000", "-__rlock__0000000001"},
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := bridge(t, s).as(mode)
			n := p.acquire(t)
			names := s.Children(path)
			slices.Sort(names)
			if len(names) != 2 || names[0][39:] != want[0] || names[1][39:] != want[1] || names[0][:39] != names[1][:39] {
				t.Errorf("got %q, want …%s and …%s of one id", names, want[0], want[1])
			}
			queue := need.Get(p.lock.Contenders(t.Context()))(t)
			need.That(t, fmt.Sprintf("Contenders: %+v", queue), len(queue) == 1 && path+"/"+queue[0].Node == n.Path() && queue[0].Pair != "")
			again := submit(func() (*zknode.Node, error) { return n.Requeue(t.Context()) }).granted(t)
			again.Release()
			wantEmpty(t, s)
		})
	}
}
