package tier

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// turned reports whether the waiter's turn has come, for better or worse.
func turned(w *waiter[int]) bool { return need.Closed(w.turn) }

// The gate does what a slice would do, whatever the order of calls.
func TestGateIsAQueue(t *testing.T) { // I6 I9
	rapid.Check(t, func(t *rapid.T) {
		var (
			g     gate[int]
			model []*waiter[int]
			out   []*waiter[int]
			tell  = sync.OnceFunc(func() { g.tellAll() })
		)
		t.Repeat(map[string]func(*rapid.T){
			"join": func(*rapid.T) { model = append(model, g.join()) },
			"admit": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("nobody waits")
				}
				g.admit()
				if w := model[0]; w.refusal != nil || !turned(w) {
					t.Fatal("admit did not choose the first")
				}
				out, model = append(out, model[0]), model[1:]
			},
			"leave": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip("nobody waits")
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "i")
				if !g.leave(model[i]) {
					t.Fatalf("leave of waiter %d: got false", i)
				}
				out, model = append(out, model[i]), slices.Delete(model, i, i+1)
			},
			"leave again": func(t *rapid.T) {
				if len(out) == 0 {
					t.Skip("nobody has left")
				}
				if g.leave(rapid.SampledFrom(out).Draw(t, "w")) {
					t.Fatal("leave of a waiter that is out: got true")
				}
			},
			"refuse": func(t *rapid.T) {
				g.refuse(errors.New("no"), func(*int) bool { return true })
				for _, w := range model {
					if (w.refusal == nil) != w.told || !turned(w) {
						t.Fatal("refuse forgot a waiter, or took one that leaves by itself")
					}
					if w.refusal != nil {
						out = append(out, w)
					}
				}
				model = slices.DeleteFunc(model, func(w *waiter[int]) bool { return w.refusal != nil })
			},
			"tell": func(*rapid.T) { tell() },
			"": func(t *rapid.T) {
				var queued []*waiter[int]
				for w := g.first; w != nil; w = w.next {
					queued = append(queued, w)
				}
				if !slices.Equal(queued, model) || g.empty() != (len(model) == 0) {
					t.Fatalf("queue of %d, empty %v; want %d", len(queued), g.empty(), len(model))
				}
				for _, w := range model {
					if turned(w) != w.told {
						t.Fatal("a queued waiter's turn has come, or one was not told to leave")
					}
				}
			},
		})
	})
}

// Whoever re-enters while the last hold is being released is too late: the node is on
// its way.
func TestOwnershipThatHasEndedIsNotReentered(t *testing.T) {
	for _, reads := range []bool{false, true} {
		own := &ownership{mutex: &Mutex{mode: map[bool]second.Mode{true: second.Reading}[reads]}}
		own.holds.Store(weight(reads))
		if hold, err := own.reenter(reads); hold == nil || err != nil {
			t.Fatalf("reenter of a live ownership: got %v, %v", hold, err)
		}
		own.holds.Add(-2 * weight(reads))
		if hold, err := own.reenter(reads); hold != nil || err != nil {
			t.Errorf("reenter of an ownership without holds: got %v, %v, want neither", hold, err)
		}
	}
}
