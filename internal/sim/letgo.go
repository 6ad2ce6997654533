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
	switch j.manner {
	case outermost:
	case downgrade:
		slices.SortStableFunc(holds, writersFirst)
	default:
		slices.Reverse(holds)
	}
	last := len(holds) - 1
	w.book.keeps(t, holds[last])
	for i, hold := range holds {
		if i == last {
			w.spoil(j)
		}
		rest := holds[i+1:]
		readsOn := !t.reads && i < last && !slices.ContainsFunc(rest, writes)
		switch {
		case i == last:
			w.book.release(t)
		case readsOn:
			w.book.downgrade(t)
		}
		w.released(j, hold)
		if readsOn && j.manner == downgrade {
			ctx := rest[0].Context(w.ctx)
			w.refuseUpgrade(j, ctx)
			w.section(j, ctx, rest[0], j.section/2)
		}
	}
	if j.manner == twice {
		if err := outer.Release(); !errors.Is(err, tier.ErrReleased) {
			w.diary.violate("API", "%v: a second release returned %v", j, err)
		}
	}
}

// spoil has the next one in line give up.
func (w *World) spoil(j *job) {
	if next := w.book.next(j); j.spoils && next != nil {
		w.diary.note("%v gives up as its turn comes", next)
		next.cancel() // it may be chosen before it gets to know
	}
}

func writes(hold *tier.Hold) bool { return !hold.Shared() }

func writersFirst(a, b *tier.Hold) int {
	switch {
	case writes(a) == writes(b):
		return 0
	case writes(a):
		return -1
	}
	return 1
}

// released releases a hold. Whatever the network does, that takes a third of the session timeout at most.
func (w *World) released(j *job, hold held) {
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
