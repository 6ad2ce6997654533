package second

import "sync/atomic"

// A Wait is an acquisition in progress, as the goroutines that wait for it see it. The tier registers functions here that return the
// state of its contender. The gate calls them when a caller wants to know. A nil Wait ignores all calls.
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

// Stands records that the contender has to wait. ask returns its place in the queue. The tier calls Stands once it has seen that; ask
// must neither block nor call the store.
func (w *Wait) Stands(ask func() Standing) {
	w.behind.Store(true)
	w.ask.Store(&ask)
}

// Tries registers a function that returns why the last request failed, and nil if it succeeded. ask must neither block nor call the
// store.
func (w *Wait) Tries(ask func() error) {
	if w != nil {
		w.failed.Store(&ask)
	}
}

// Forget records that there is no contender any more, or that its place is unknown.
func (w *Wait) Forget() { w.ask.Store(nil) }

// Standing returns the place of the contender, and the zero Standing if it is unknown.
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
