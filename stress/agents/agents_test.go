package main

import (
	"context"
	"fmt"
	"os"
	"slices"
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

// built is the command tierlock, which is built once for all tests.
var built = sync.OnceValues(func() (string, error) { return plan{}.command(context.Background(), programDir) })

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
	p.Program = need.Get(built())(t)
	p.Agents, p.Clients, p.Duration, p.Session, p.Lease, p.Seed = 2, 3, 4*time.Second, 2600*time.Millisecond, 800*time.Millisecond, 1
	p.Pause = time.Second
	p.Languages = slices.DeleteFunc(slices.Clone(languages), func(language string) bool {
		_, err := plan{Languages: []string{language}}.programs()
		if err != nil && os.Getenv("TIERLOCK_REQUIRE_SERVER") == "1" {
			t.Fatal(err)
		} else if err != nil {
			t.Log(err)
		}
		return err != nil
	})
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
	need.AtLeast(t, "writes", v.Chaos.FencedWrites, 30)
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
		p.Lock, p.Languages, p.Duration = row.lock, languages[:1], time.Second
		p.Section = 20 * time.Millisecond // longer than a hand-over
		v, err := p.run(t.Context(), t.Output())
		childtest.Check(t, err)
		need.Has(t, "the verdict", v.String(), row.want)
		need.That(t, fmt.Sprintf("the clients see overlaps: %v", v), v.Overlaps > 0 && v.Chaos.Illegal())
	})
}

// Clients in other languages have to notice the end of their hold, too. The deaf ones do not. One in each language is stopped in its
// section for longer than its lease.
func TestJudgeFindsLateClientsInOtherLanguages(t *testing.T) {
	t.Parallel()
	p := short(t)
	p.Store, p.Lock, p.Faults = store.Redis, "deaf", []string{stopClient}
	p.Languages = slices.DeleteFunc(p.Languages, func(language string) bool { return language == "go" })
	if p.Trials = len(p.Languages); p.Trials == 0 {
		t.Skip("this machine has no other language")
	}
	v, err := p.run(t.Context(), t.Output())
	childtest.Check(t, err)
	need.Has(t, "the verdict", v.String(), "sections that overlap another", "looks at a hold that saw no loss")
	stopped, lost := int(v.Chaos.StoppedHolders), int(v.Chaos.StoppedAndLost)
	need.List(t, "holders stopped, and those that noticed their loss", []int{stopped, lost}, p.Trials, 0)
}

// More trials, and those of the other faults, take longer.
func TestEachTrialIsMade(t *testing.T) {
	t.Parallel()
	p := short(t)
	p.Store, p.Trials, p.Faults = store.Redis, 1, []string{killClient, killAgent}
	v, err := p.run(t.Context(), t.Output())
	childtest.Check(t, err)
	t.Log(v)
	need.Empty(t, "violations", v.violations())
	for _, kind := range p.Faults {
		need.AtLeast(t, kind, v.Chaos.Faults[kind], 1) // more if a client had left its section before its agent was hit
	}
}

func TestLanguageThatIsMissingIsAnError(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, language := range languages[1:] {
		_, err := plan{Languages: []string{"go", language}}.programs()
		need.WantMention(t, err, language, "-languages go")
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"-store", "postgres-advisory"}, {"-store", "unknown"}, {"-agents", "0"}, {"-clients", "0"},
		{"-clients", "2"}, {"-languages", "c"}, {"-trials", "-1"}, {"more"}} {
		need.Equal(t, fmt.Sprint("exit status of ", args), run(args, t.Output(), t.Output()), exitUsage)
	}
	need.List(t, "stores", served(), "zookeeper", "etcd", "postgres", "redis", "mysql")
}
