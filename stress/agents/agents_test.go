package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/store/storetest"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

var programDir string

// program is the command tierlock, which is built once for all tests.
var program = sync.OnceValues(func() (string, error) { return plan{}.command(context.Background(), programDir) })

func TestMain(m *testing.M) {
	store.Agent.Locks["deaf"] = store.Kind{Dial: dialDeaf}
	store.Agent.Locks["none"] = store.Kind{Dial: storetest.DialBroken}
	if twin.Role() != "" {
		main()
		return
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tierlock-agents-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programDir = dir
	os.Setenv("TMPDIR", dir) // the records of runs that fail on purpose are not kept
	return m.Run()
}

// short returns a run of a few seconds, with the shortest session of ZooKeeper.
func short(t *testing.T) plan {
	t.Helper()
	p := newPlan()
	p.Program = need.Get(program())(t)
	p.Agents, p.Clients, p.Duration, p.Session, p.Lease, p.Seed = 2, 3, 4*time.Second, 2600*time.Millisecond, 800*time.Millisecond, 1
	p.Pause = time.Second
	return p
}

// More faults, and the other stores, take longer: see the Makefile's target agents.
func TestNothingOverlapsWhenAgentsAndClientsDieOrStop(t *testing.T) {
	t.Parallel()
	v, err := short(t).run(t.Context(), t.Output())
	childtest.Check(t, err)
	t.Log(v)
	need.Empty(t, "violations", v.violations())
	for _, kind := range []string{"kill client", "stop client", "kill agent"} {
		need.That(t, fmt.Sprintf("%s: none in %v", kind, v.Chaos.Faults), v.Chaos.Faults[kind] > 0)
	}
	need.AtLeast(t, "writes", v.Chaos.FencedWrites, 100)
}

// deaf makes clients that do not notice that their hold has ended.
type deaf struct{ store.Locker }

func dialDeaf(ctx context.Context, o store.Options) (store.Locker, error) {
	inner, err := store.Agent.Locks["mutex"].Dial(ctx, o)
	return deaf{inner}, err
}

func (l deaf) Contender(path string) (store.Contender, error) {
	acquire, err := l.Locker.Contender(path)
	return func(ctx context.Context, weight int64) (store.Hold, error) {
		h, err := acquire(ctx, weight)
		if err != nil {
			return nil, err
		}
		return storetest.Hold{Fence: h.Token()}, h.Release()
	}, err
}

func TestJudgeFinds(t *testing.T) {
	t.Parallel()
	need.Each(t, map[string]struct {
		lock string
		want string
	}{
		"clients that go on after the end of their hold": {"deaf", "sections that overlap another"},
		"clients that write without the lock":            {"none", "lost updates of a protected counter"},
	}, func(t *testing.T, row struct{ lock, want string }) {
		t.Parallel()
		p := short(t)
		p.Lock, p.Duration, p.Section = row.lock, time.Second, 20*time.Millisecond // a section lasts longer than a hand-over
		v, err := p.run(t.Context(), t.Output())
		childtest.Check(t, err)
		need.Has(t, "the verdict", v.String(), row.want)
		need.That(t, fmt.Sprintf("the clients see overlaps: %v", v), v.Overlaps > 0 && v.Chaos.Illegal())
	})
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-store", "postgres-advisory"}, {"-store", "unknown"}, {"-agents", "0"}, {"-clients", "0"}, {"more"}} {
		need.Equal(t, fmt.Sprint("exit status of ", args), run(args, t.Output(), t.Output()), exitUsage)
	}
	need.List(t, "stores", served(), "zookeeper", "etcd", "postgres", "redis", "mysql")
}
