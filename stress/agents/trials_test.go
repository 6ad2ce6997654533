package main

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// The fault of an agent begins at 20, while client 1 is in its section, and ends at 50.
func TestTrialNeedsASectionThatWasHit(t *testing.T) {
	need.Each(t, map[string]struct {
		hold evidence.Hold
		want bool
	}{
		"that spans the fault":     {evidence.Hold{Got: 10, Left: 51, Over: 52}, true},
		"that was lost":            {evidence.Hold{Got: 10, Left: 40, Over: 52, Lost: true}, true},
		"that ended before":        {evidence.Hold{Got: 10, Left: 21, Over: 22}, false},
		"that ended in the middle": {evidence.Hold{Got: 10, Left: 40, Over: 41}, false},
	}, func(t *testing.T, row struct {
		hold evidence.Hold
		want bool
	},
	) {
		f := fleet{dir: t.TempDir()}
		earlier, later := evidence.Hold{Got: 1, Left: 2, Over: 3, Lost: true}, evidence.Hold{Got: 60, Left: 61, Over: 62, Lost: true}
		for process, holds := range [][]evidence.Hold{1: {earlier, row.hold, later}, 2: {{Got: 15, Left: 90, Over: 91, Lost: true}}} {
			journal := need.Get(evidence.CreateJournal(f.dir, process))(t)
			for _, h := range holds {
				h.Process, h.ID = process, journal.NextID()
				need.OK(t, journal.Write(&h))
			}
		}
		need.Equal(t, "whether the section was hit", f.hit(t.Context(), 1, 20, 50), row.want)
	})
}
