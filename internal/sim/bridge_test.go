package sim

import "testing"

// An operator that deletes either znode of a bridged process is the one fault here, so that whoever does not watch
// both is told too late.
func TestBridgedProcessesHearOfTheEndOfEitherZnode(t *testing.T) { // I7
	for seed := range uint64(60) {
		p := NewPlan(seed + 1)
		p.Bridged, p.Troubles = true, []Trouble{Deletion}
		if r := run(t, p); len(r.Violations) > 0 {
			explain(t, r)
		}
	}
}
