package interop_test

import (
	"testing"
	"time"
)

// A writer takes all units of a reader/writer lock, of which a reader takes one.
const (
	everything = 1000

	reads      = "1"
	writes     = "1000"
	mostly     = "1 1 1 1 1 1 1 1 1 1000"
	downgrades = "1 1 1 1000>1"
)

// A fleet are the drivers that share one lock, with the turns of each.
type fleet struct {
	load
	kinds []string
	turns []string
	most  int64    // units that are seen to be taken at a time, by those that do not want all
	below []string // the parents of nodes, if not the path
}

// All fleets run at once, each on a path of its own: nobody overlaps who should not, those do who may, everybody gets
// turns, nothing is left. Curator does not downgrade: before 5.5 it lets a writer in.
func TestFamilySharesItsPaths(t *testing.T) {
	rw := load{threads: 3, section: time.Millisecond, all: everything}
	e := newEnsemble(t)
	for name, f := range map[string]fleet{
		"readers beside writers": {load: rw, kinds: []string{"tier-rw", "curator-rw"}, turns: []string{reads, writes}, most: 2},
		"writers beside readers": {load: rw, kinds: []string{"tier-rw", "curator-rw"}, turns: []string{writes, reads}, most: 2},
		"writers":                {load: rw, kinds: []string{"tier-rw", "curator-rw"}, turns: []string{writes}},
		"readers":                {load: rw, kinds: []string{"tier-rw", "curator-rw"}, turns: []string{reads}, most: 4},
		"all":                    {load: rw, kinds: []string{"tier-rw", "curator-rw", "tier-rw", "curator-rw"}, turns: []string{downgrades, mostly, downgrades, writes}, most: 4},
		"writers of kazoo":       {load: rw, kinds: []string{"tier-rw-kazoo", "kazoo-write", "tier-rw-kazoo"}, turns: []string{mostly, writes, downgrades}, most: 4},
		"readers of kazoo":       {load: rw, kinds: []string{"tier-rw-kazoo", "kazoo-read"}, turns: []string{reads}, most: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := e.below(name)
			e.keepPath(t)
			drivers := launch(t, e, sessionTimeout, f.kinds...)
			r := shareUnits(t, f.load, drivers, f.turns...)
			t.Logf("%d at a time at most", r.most)
			if r.most < f.most {
				t.Errorf("%d units were taken at a time at most, want %d", r.most, f.most)
			}
			if f.below == nil {
				e.awaitChildren(t, 0)
			}
			for _, parent := range f.below {
				e.below(parent).awaitChildren(t, 0)
			}
		})
	}
}

// Before 2.9 a reader of kazoo can wait for a writer that waits for it, until one of them gives up. It is kazoo that does
// so here; nobody overlaps, and ours get their turns.
func TestReadersOfKazooGiveUpBesideWriters(t *testing.T) {
	e := newEnsemble(t)
	e.keepPath(t)
	l := load{threads: 3, section: time.Millisecond, all: everything}
	drivers := launch(t, e, sessionTimeout, "tier-rw-kazoo", "kazoo-rw", "tier-rw-kazoo")
	shareUnits(t, l, drivers, mostly)
	e.awaitChildren(t, 0)
}
