package pglock

import (
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
)

// The answer may be lost, and a request be late. The permits of a path have nothing to do with its lock.
func TestCommandsAboutPermitsMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := start(t)
	held := p.mustAcquire(t)
	do := func(op queue.Op, c queue.Ref, weight int) queue.Answer {
		t.Helper()
		return held.Store().Do(soon(t), queue.Command{Op: op, Session: p.session(t), Ref: c, Weight: weight})
	}
	taker := func() queue.Ref { return queue.Ref{Path: lockPath(t), ID: newID(), Permits: 5} }
	a, b := taker(), taker()
	for range 2 {
		if v := do(queue.Try, a, 4).View; !v.Has {
			t.Errorf("%+v, want 4 of 5", v)
		}
		if v := do(queue.Enter, b, 3).View; v.Has || !v.Known {
			t.Errorf("%+v, want to wait for 3", v)
		}
	}
	if v := do(queue.Look, b, 0).View; v.Has || v.Free != 1 || v.Ahead != 0 || v.Waiting != 0 {
		t.Errorf("%+v, want to be first, with one that is free", v)
	}
	for _, weight := range []int{3, 3, 2, 4} { // the last one is late
		if v := do(queue.Weigh, a, weight).View; !v.Has {
			t.Errorf("%+v, want to have %d", v, weight)
		}
	}
	if got := do(queue.List, queue.Ref{Path: lockPath(t), Permits: 5}, 0).Queue; len(got) != 2 || got[0].Permits != 2 || got[1].Permits != 3 {
		t.Errorf("%+v, want 2 and 3 permits", got)
	}
	if v := do(queue.Weigh, taker(), 1).View; v.Known {
		t.Errorf("%+v of one that is not there", v)
	}
	if n := left(t, lockPath(t)); n != 1 {
		t.Errorf("%d queue for the lock, want its holder", n)
	}
	mustRelease(t, held)
}
