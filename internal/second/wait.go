package second

import "sync/atomic"

// A Wait is an acquisition under way, as seen by those who wait for it. The tier says in it how to
// learn where its contender stands; the gate asks when a caller wants to know. Nil stands for none.
type Wait struct {
	ask    atomic.Pointer[func() Standing]
	failed atomic.Pointer[func() error]
	behind atomic.Bool
}

// A Standing is the place of a contender in its queue, as far as the tier knows without asking
// the store.
type Standing struct {
	Ahead   int       // how many are; 1 if only the holder is
	Nearest Contender // the one right ahead, as far as its contender tells

	GracePeriod *GracePeriodError // the store is in a grace period; nil if not
	Refusal     error             // why the last request failed although the store can be reached; nil if it was served
}

// Stands notes that the contender has to wait, and how to learn its place. The tier calls it once it has seen that; ask must neither block
// nor call the store.
func (w *Wait) Stands(ask func() Standing) {
	w.behind.Store(true)
	w.ask.Store(&ask)
}

// Tries says how to learn why the last request failed; ask must not wait, nor call the store, and returns nil if it was served.
func (w *Wait) Tries(ask func() error) {
	if w != nil {
		w.failed.Store(&ask)
	}
}

// Forget says that there is no contender any more, or nothing known of its place.
func (w *Wait) Forget() { w.ask.Store(nil) }

// Standing returns what is known, and the zero Standing if nothing is.
func (w *Wait) Standing() (s Standing) {
	if w != nil {
		if ask := w.ask.Load(); ask != nil {
			s = (*ask)()
		}
		if ask := w.failed.Load(); ask != nil {
			s.Refusal = (*ask)()
		}
	}
	return s
}

// Behind reports whether the acquisition has ever waited for another contender.
func (w *Wait) Behind() bool { return w.behind.Load() }
