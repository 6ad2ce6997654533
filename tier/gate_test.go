package tier

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// The function turned reports whether the waiter has its result, which is a grant or an error.
func turned(w *waiter[int]) bool { return need.Closed(w.turn) }

// The gate behaves like a queue in a slice, whatever the order of the calls is.
func TestGateIsAQueue(t *testing.T) { // I6 I9
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var (
				random = rand.New(rand.NewPCG(seed, 0))
				g      gate[int]
				model  []*waiter[int]
				out    []*waiter[int]
				tell   = sync.OnceFunc(func() { g.tellAll() })
			)
			for range 60 {
				switch step := random.IntN(20); {
				case step < 8:
					model = append(model, g.join())
				case step < 11 && len(model) > 0:
					g.admit()
					w := model[0]
					need.Must(t, "admit did not choose the first", w.refusal == nil && turned(w))
					out, model = append(out, w), model[1:]
				case step < 15 && len(model) > 0:
					i := random.IntN(len(model))
					need.Must(t, fmt.Sprintf("leave of waiter %d: got false", i), g.leave(model[i]))
					out, model = append(out, model[i]), slices.Delete(model, i, i+1)
				case step < 18 && len(out) > 0:
					need.Must(t, "leave of a waiter that is out: got true", !g.leave(out[random.IntN(len(out))]))
				case step == 18:
					g.refuse(errors.New("no"), func(*int) bool { return true })
					for _, w := range model {
						need.Must(t, "refuse forgot a waiter, or refused a waiter that leaves by itself", (w.refusal == nil) == w.told && turned(w))
						if w.refusal != nil {
							out = append(out, w)
						}
					}
					model = slices.DeleteFunc(model, func(w *waiter[int]) bool { return w.refusal != nil })
				case step == 19:
					tell()
				}
				var queued []*waiter[int]
				for w := g.first; w != nil; w = w.next {
					queued = append(queued, w)
				}
				if !slices.Equal(queued, model) || g.empty() != (len(model) == 0) {
					t.Fatalf("queue of %d, empty %v; want %d", len(queued), g.empty(), len(model))
				}
				for _, w := range model {
					need.Must(t, "a queued waiter has its turn, or a waiter was not woken", turned(w) == w.told)
				}
			}
		})
	}
}

// A goroutine cannot enter an ownership again when its last hold is being released, because the contender is then being passed on.
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
