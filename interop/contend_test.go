package interop_test

import "testing"

// Many processes on one path at once: nothing is lost, nobody overlaps, everybody gets
// turns, nothing is left. Curator and kazoo keep apart, because Curator never waits for
// kazoo's nodes, whoever else is there.
func TestAllShareOnePath(t *testing.T) {
	for _, others := range [][]string{{"curator", "zk"}, {"kazoo", "zk"}} {
		for _, ours := range []string{"tier", "tier-strict", "tier-zk"} {
			t.Run(others[0]+"+"+others[1]+"+"+ours, func(t *testing.T) {
				e := newEnsemble(t)
				share(t, e, 3, launch(t, e, sessionTimeout, others[0], others[1], ours, ours))
			})
		}
	}
}

func share(t *testing.T, e *ensemble, threads int, drivers []*driver) {
	t.Helper()
	name := newOracle(t)
	for _, d := range drivers {
		d.order(t, "contend %d %d %s", duration.Milliseconds(), threads, name)
	}
	var turns int64
	for _, d := range drivers {
		a := d.answer(t)
		t.Logf("%-14s %5d turns, the fewest of a thread %d", d.kind, a.Turns, a.Fewest)
		turns += a.Turns
		if a.Overlaps > 0 {
			t.Errorf("%s: %d of %d turns overlap with somebody else's", d.kind, a.Overlaps, a.Turns)
		}
		if a.Fewest == 0 {
			t.Errorf("%s: a thread never had the lock", d.kind)
		}
	}
	if n := counted(t, name); n != turns {
		t.Errorf("counter: got %d after %d turns", n, turns)
	}
	e.awaitChildren(t, 0) // of sessions that still live
}
