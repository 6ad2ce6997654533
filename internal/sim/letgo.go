package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// giveUp releases all holds of a tenure, in one order or the other.
func (w *World) giveUp(j *job, t *tenure, outer *tier.Hold, inner []*tier.Hold) {
	holds := append([]*tier.Hold{outer}, inner...)
	if j.manner != outermost {
		slices.Reverse(holds)
	}
	last := len(holds) - 1
	w.book.keeps(t, holds[last])
	for i, hold := range holds {
		if next := w.book.next(j); i == last && j.spoils && next != nil {
			w.diary.note("%v gives up as its turn comes", next)
			next.cancel() // it may be chosen before it gets to know
		}
		if i == last {
			w.book.release(t)
		}
		w.released(j, hold)
	}
	if j.manner == twice {
		if err := outer.Release(); !errors.Is(err, tier.ErrReleased) {
			w.diary.violate("API", "%v: a second release returned %v", j, err)
		}
	}
}

// released releases a hold. Whatever the network does, that takes a third of the session timeout at most.
func (w *World) released(j *job, hold *tier.Hold) {
	begin, lost := time.Now(), closed(hold.Lost())
	err := hold.Release()
	if err != nil {
		w.diary.note("%v released: %v", j, err)
	}
	switch {
	case lost && !errors.Is(err, tier.ErrLost):
		w.diary.violate("API", "%v: the lock was lost, the release returned %v", j, err)
	case err != nil && !errors.Is(err, tier.ErrLost):
		w.diary.violate("API", "%v: the release returned %v", j, err)
	}
	if took := time.Since(begin); took > sessionTimeout/3 {
		w.diary.violate("I4", "%v: the release took %v", j, took)
	}
	if !errors.Is(hold.Err(), tier.ErrReleased) {
		w.diary.violate("API", "%v: a released hold says %v", j, hold.Err())
	}
}
