package evidence

import (
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// bothWays runs a test twice, once for each way in which a register detects overlaps.
func bothWays(t *testing.T, test func(t *testing.T, how Judging)) {
	t.Helper()
	t.Run("by count", func(t *testing.T) { test(t, ByCount) })
	t.Run("by kernel", func(t *testing.T) { test(t, ByKernel) })
}

func TestOverlapIsSeenByBothProcessesAndGoroutines(t *testing.T) {
	bothWays(t, func(t *testing.T, how Judging) {
		dir := t.TempDir()
		here, elsewhere := open(t, dir, 0, how), open(t, dir, 0, how)
		first := enter(t, here)
		need.That(t, "the first section, alone: overlap seen", !first.Overlap)
		second, third := enter(t, here), enter(t, elsewhere)
		need.That(t, "a second goroutine inside: no overlap seen", second.Overlap)
		need.That(t, "a second process inside: no overlap seen", third.Overlap)
		need.That(t, "sections of two paths: overlap seen", !enter(t, open(t, dir, 1, how)).Overlap)
		for _, s := range []Section{third, second, first} {
			leave(t, s, 1, 1)
		}
		need.That(t, "after leave: overlap seen", !enter(t, elsewhere).Overlap)
	})
}

func TestOverlappingSectionLosesAnUpdate(t *testing.T) {
	r := open(t, t.TempDir(), 0, ByCount)
	a, b := enter(t, r), enter(t, r)
	leave(t, a, 1, 1)
	leave(t, b, 1, 1)
	leave(t, enter(t, r), 1, 1)
	need.Equal(t, "counted after two sections at once and one more", r.Counted(), 2)
}

func TestAbandonedSectionIsNotCounted(t *testing.T) {
	bothWays(t, func(t *testing.T, how Judging) {
		r := open(t, t.TempDir(), 0, how)
		need.OK(t, enter(t, r).Abandon())
		need.That(t, "the abandoned section still excludes others", !enter(t, r).Overlap)
		need.Equal(t, "counted", r.Counted(), 0)
	})
}

func open(t *testing.T, dir string, path int, how Judging) *Register {
	t.Helper()
	return need.Get(NewRegister(dir, path, rule.Mutex(), how))(t)
}

func enter(t *testing.T, r *Register) Section {
	t.Helper()
	return need.Get(r.Enter(1))(t)
}

func leave(t *testing.T, s Section, token, process int64) (regression bool) {
	t.Helper()
	regression, _, err := s.Leave(token, process)
	need.OK(t, err)
	return regression
}
