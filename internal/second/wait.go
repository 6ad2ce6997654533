package second

import "sync/atomic"

// A Wait shows the progress of an acquisition to the goroutines that wait for it. The tier registers functions that return the state of its
// contender. The gate calls these functions when a caller asks for the state. The methods Tries and Standing accept a nil Wait.
type Wait struct {
	ask    atomic.Pointer[func() Standing]
	failed atomic.Pointer[func() error]
	behind atomic.Bool
}

// A Standing is the place of a contender in its queue, as far as the tier knows without asking the store.
type Standing struct {
	Ahead   int       // how many contenders are ahead; 1 if only the holder is
	Nearest Contender // the contender right ahead, as far as the store describes it

	GracePeriod *GracePeriodError // the grace period of the store; nil if there is none
	Refusal     error             // why the last request failed although the store can be reached; nil if it was served
}

// Stands is called once the tier has seen that the contender has to wait. It registers ask, which returns the place of the contender in
// the queue. ask must neither block nor call the store.
func (w *Wait) Stands(ask func() Standing) {
	w.behind.Store(true)
	w.ask.Store(&ask)
}

// Tries registers ask, which returns why the last request failed, and nil if it succeeded. ask must neither block nor call the store.
func (w *Wait) Tries(ask func() error) {
	if w != nil {
		w.failed.Store(&ask)
	}
}

// Forget is called when the contender does not wait any more, or its place is unknown. It removes the function that Stands registered.
func (w *Wait) Forget() { w.ask.Store(nil) }

// Standing returns the place of the contender. Ahead is 0 if the place is unknown.
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
