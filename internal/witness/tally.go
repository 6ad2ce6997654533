//go:build unix

package witness

import (
	"strings"
	"testing"
)

// A Count says how many slots were run, and how many of them more than once.
type Count struct{ Slots, Twice int }

// Tally counts the slots of all keys that begin with prefix. The test fails if two processes worked on one
// key at once.
func (w Witness) Tally(t testing.TB, prefix string) Count {
	t.Helper()
	entries, err := w.Entries()
	if err != nil {
		t.Fatal(err)
	}
	type slot struct {
		key    string
		number int64
	}
	runs := make(map[slot]int)
	for _, e := range entries {
		if !strings.HasPrefix(e.Key, prefix) {
			continue
		}
		if e.Overlap {
			t.Errorf("two processes at once worked on %s, slot %d", e.Key, e.Slot)
		}
		runs[slot{e.Key, e.Slot}]++
	}
	c := Count{Slots: len(runs)}
	for _, n := range runs {
		if n > 1 {
			c.Twice++
		}
	}
	return c
}
