package interop_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkconn"
)

// A reader/writer lock has everything as its number of units. A reader takes one unit, and a writer takes all.
const (
	everything = 1000

	reads      = "1"
	writes     = "1000"
	mostly     = "1 1 1 1 1 1 1 1 1 1000"
	downgrades = "1 1 1 1000>1"
)

// keepPath makes the lock path permanent. kazoo needs a path that is not deleted.
func (e *ensemble) keepPath(t *testing.T) {
	t.Helper()
	path := ""
	for name := range strings.SplitSeq(e.path[1:], "/") {
		path += "/" + name
		zkconn.Put(t, e.conn, 0, path)
	}
}

// A fleet is a set of drivers that share one lock, with the turns of each.
type fleet struct {
	load
	kinds []string
	turns []string // turns of the drivers; if there are none, each takes all units of a mutex
	most  int64    // the greatest number of units that are taken at the same time by drivers that do not want all
	below []string // the parents of the lock's nodes, if the path itself is not their parent
}

// The fleets run at the same time, each on a path of its own. Only drivers that may share the lock have it at the same time. All drivers
// get the lock, and nothing is left at the end. No fleet has both Curator and kazoo, because Curator never waits for kazoo's nodes. Before
// version 2.9, a reader of kazoo and a writer may wait for each other. Then kazoo gives up, and the contenders of tierlock get the lock.
func TestFamilySharesItsPaths(t *testing.T) {
	t.Parallel()
	mutex := load{threads: 3, section: time.Millisecond, all: 1}
	rw := load{threads: 3, section: time.Millisecond, all: everything}
	semaphore := []string{"locks", "leases"}
	downgrade := downgrades // downgrades of Curator
	if curatorBefore55(t) {
		downgrade = mostly
	}
	e := newEnsemble(t)
	for name, f := range map[string]fleet{
		"mutexes of Curator":            {load: mutex, kinds: []string{"curator", "zk", "tier", "tier", "tier-strict", "tier-zk"}},
		"mutexes of kazoo":              {load: mutex, kinds: []string{"kazoo", "zk", "tier", "tier", "tier-strict", "tier-zk"}},
		"mutexes of kazoo as it is":     {load: mutex, kinds: []string{"kazoo-default", "kazoo-default", "tier-kazoo", "tier-kazoo"}},
		"mutexes, WithKazoo":            {load: mutex, kinds: []string{"kazoo", "zk", "tier", "tier-kazoo"}},
		"mutexes, WithKazoo at Curator": {load: mutex, kinds: []string{"curator", "zk", "tier", "tier-kazoo"}},
		"elections": {
			load:  load{threads: 1, section: time.Millisecond, all: 1},
			kinds: []string{"curator-leader", "election", "curator-leader", "election"},
		},
		"readers beside writers": {load: rw, kinds: []string{"tier-rw", "curator-rw"}, turns: []string{reads, writes}, most: 2},
		"writers beside readers": {load: rw, kinds: []string{"tier-rw", "curator-rw"}, turns: []string{writes, reads}, most: 2},
		"all": {load: rw, kinds: []string{"tier-rw", "curator-rw", "tier-rw", "curator-rw"},
			turns: []string{downgrades, downgrade, downgrades, writes}, most: 2},
		"writers of kazoo": {load: rw, kinds: []string{"tier-rw-kazoo", "kazoo-write", "tier-rw-kazoo"},
			turns: []string{mostly, writes, downgrades}, most: 2},
		"all of kazoo": {load: rw, kinds: []string{"tier-rw-kazoo", "kazoo-rw", "tier-rw-kazoo"}, turns: []string{mostly}, most: 2},
		"permits": {
			load: load{threads: 3, section: 20 * time.Millisecond, all: 4}, below: semaphore,
			kinds: []string{"tier-semaphore-4", "curator-semaphore-4", "tier-semaphore-4"}, turns: []string{"1 2 1 4", "1", "1 3"}, most: 2,
		},
		"one permit": {
			load: mutex, below: semaphore,
			kinds: []string{"tier-semaphore-1", "curator-semaphore-mutex", "curator-semaphore-1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := e.below(name)
			e.keepPath(t)
			drivers := launch(t, e, sessionTimeout, f.kinds...)
			if f.turns == nil {
				f.turns = []string{"1"}
			}
			r := share(t, f.load, drivers, f.turns)
			t.Logf("%d at a time at most", r.most)
			need.AtLeast(t, "units were taken at a time at most", r.most, f.most)
			if f.below == nil {
				e.awaitChildren(t, 0)
			}
			for _, parent := range f.below {
				e.below(parent).awaitChildren(t, 0)
			}
		})
	}
}

// curatorBefore55 reports whether Curator is older than version 5.5. It reads the version from the names of Debian's files.
func curatorBefore55(t *testing.T) bool {
	t.Helper()
	for _, old := range []string{"[1-4].*", "5.[0-4].*"} {
		if found, err := filepath.Glob("/usr/share/java/curator-recipes-" + old + ".jar"); err != nil {
			t.Fatal(err)
		} else if found != nil {
			return true
		}
	}
	return false
}
