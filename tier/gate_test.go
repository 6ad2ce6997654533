package tier

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"
)

// turned reports whether the waiter's turn has come, for better or worse.
func turned(w *waiter[int]) bool {
	select {
	case <-w.turn:
		return true
	default:
		return false
	}
}

func TestGateAdmitsInOrderOfArrival(t *testing.T) { // I6
	var g gate[int]
	waiters := []*waiter[int]{g.join(), g.join(), g.join()}
	for i, w := range waiters {
		g.admit()
		if !turned(w) || w.refusal != nil {
			t.Errorf("admission %d: waiter %d turned %v, with %v; want its turn", i, i, turned(w), w.refusal)
		}
		for j, later := range waiters[i+1:] {
			if turned(later) {
				t.Errorf("admission %d let waiter %d through, too", i, i+1+j)
			}
		}
	}
	if !g.empty() {
		t.Error("gate not empty when all have been admitted")
	}
}

func TestGateKeepsOrderWhenOneLeaves(t *testing.T) { // I9
	for leaver := range 3 {
		var g gate[int]
		waiters := []*waiter[int]{g.join(), g.join(), g.join()}
		if !g.leave(waiters[leaver]) {
			t.Fatalf("leave of queued waiter %d: got false", leaver)
		}
		for i, w := range slices.Delete(slices.Clone(waiters), leaver, leaver+1) {
			if g.admit(); !turned(w) {
				t.Errorf("waiter %d left: admission %d went to somebody else", leaver, i)
			}
		}
		if turned(waiters[leaver]) || !g.empty() {
			t.Errorf("waiter %d left: turned %v, gate empty %v; want false, true", leaver, turned(waiters[leaver]), g.empty())
		}
	}
}

func TestGateTellsLeaverThatItWasChosen(t *testing.T) {
	var g gate[int]
	admitted, refused := g.join(), g.join()
	g.admit()
	g.refuse(errors.New("no"), nil)
	for name, w := range map[string]*waiter[int]{"admitted": admitted, "refused": refused} {
		if g.leave(w) {
			t.Errorf("leave of %s waiter: got true, want false", name)
		}
	}
}

func TestGateRefusesEverybody(t *testing.T) {
	var g gate[int]
	reason := errors.New("reason")
	waiters := []*waiter[int]{g.join(), g.join(), g.join()}
	g.refuse(reason, nil)
	for i, w := range waiters {
		if !turned(w) || !errors.Is(w.refusal, reason) {
			t.Errorf("waiter %d after refuse: got %v; want %v", i, w.refusal, reason)
		}
	}
	if !g.empty() {
		t.Error("gate not empty after refuse")
	}
}

// The gate does what a slice would do, whatever the order of calls.
func TestGateIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			g     gate[int]
			model []*waiter[int]
			out   []*waiter[int]
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
				g.refuse(errors.New("no"), nil)
				for _, w := range model {
					if w.refusal == nil || !turned(w) {
						t.Fatal("refuse forgot a waiter")
					}
				}
				out, model = append(out, model...), nil
			},
			"": func(t *rapid.T) {
				var queued []*waiter[int]
				for w := g.first; w != nil; w = w.next {
					queued = append(queued, w)
				}
				if !slices.Equal(queued, model) || g.empty() != (len(model) == 0) {
					t.Fatalf("queue of %d, empty %v; want %d", len(queued), g.empty(), len(model))
				}
				for _, w := range model {
					if turned(w) {
						t.Fatal("a queued waiter's turn has come")
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
		own.begin(nil, nil, 0, found)
		if hold, err := own.reenter(reads); hold == nil || err != nil {
			t.Fatalf("reenter of a live ownership: got %v, %v", hold, err)
		}
		own.holds.Add(-2 * weight(reads))
		if hold, err := own.reenter(reads); hold != nil || err != nil {
			t.Errorf("reenter of an ownership without holds: got %v, %v, want neither", hold, err)
		}
	}
}

// A writer may read, and write again as long as it still does.
func TestOwnershipThatOnlyReadsIsNotToWrite(t *testing.T) {
	own := &ownership{mutex: new(Mutex)}
	own.begin(nil, nil, 0, found)
	own.reenter(true)
	if hold, err := own.reenter(false); hold == nil || hold.Shared() || err != nil {
		t.Errorf("reenter to write of an ownership that writes: got %v, %v", hold, err)
	}
	own.holds.Add(-2 * writeHold)
	if hold, err := own.reenter(false); hold != nil || !errors.Is(err, ErrUpgrade) {
		t.Errorf("reenter to write of an ownership that only reads: got %v, %v, want %v", hold, err, ErrUpgrade)
	}
	if n := own.count(); n != 1 {
		t.Errorf("%d holds, want 1", n)
	}
}

// crowded runs turns from 100 goroutines or so.
func crowded(b *testing.B, turn func()) {
	b.ReportAllocs()
	b.SetParallelism(50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			turn()
		}
	})
}

// BenchmarkGate is a mutex made of a gate and nothing else: the part of a hand-off that
// waiting first in, first out costs.
func BenchmarkGate(b *testing.B) {
	var (
		mu     sync.Mutex
		g      gate[int]
		locked bool
	)
	crowded(b, func() {
		mu.Lock()
		var w *waiter[int]
		if locked {
			w = g.join()
		}
		locked = true
		mu.Unlock()
		if w != nil {
			<-w.turn
		}
		mu.Lock()
		if g.empty() {
			locked = false
		} else {
			g.admit()
		}
		mu.Unlock()
	})
}

// BenchmarkSemaphore is for orientation: x/sync's, first in, first out and with a
// context, as a hand-off is.
func BenchmarkSemaphore(b *testing.B) {
	s := semaphore.NewWeighted(1)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	crowded(b, func() {
		if err := s.Acquire(ctx, 1); err != nil {
			b.Error(err)
		}
		s.Release(1)
	})
}

// BenchmarkSyncMutex is for orientation: what a turn costs without order, context and
// network.
func BenchmarkSyncMutex(b *testing.B) {
	var mu sync.Mutex
	crowded(b, func() {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // an empty section is the point
	})
}
