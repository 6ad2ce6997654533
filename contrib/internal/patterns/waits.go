package patterns

import (
	"slices"
	"sync"
	"time"
)

// A Waits has the long waits in progress. The observer reports a wait when the wait has become long, and again when it ends.
type Waits struct {
	mu    sync.Mutex             // guards the field below
	begun map[string][]time.Time // the key is the pattern; the times are sorted
}

// Long adds a wait that has lasted for the duration waited.
func (w *Waits) Long(pattern string, waited time.Duration) {
	begun := time.Now().Add(-waited)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun == nil {
		w.begun = make(map[string][]time.Time)
	}
	at, _ := slices.BinarySearchFunc(w.begun[pattern], begun, time.Time.Compare)
	w.begun[pattern] = slices.Insert(w.begun[pattern], at, begun)
}

// Over removes a wait that began at the time begun. If the wait became long, its recorded beginning is a little later than begun, because
// the clock was read later. An earlier recorded beginning belongs to another wait. A wait that did not become long is not recorded.
func (w *Waits) Over(pattern string, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, _ := slices.BinarySearchFunc(w.begun[pattern], begun, time.Time.Compare); at < len(w.begun[pattern]) {
		w.begun[pattern] = slices.Delete(w.begun[pattern], at, at+1)
	}
}

// Oldest returns how long the oldest wait has lasted. If there is none, it returns zero.
func (w *Waits) Oldest(pattern string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.begun[pattern]) == 0 {
		return 0
	}
	return time.Since(w.begun[pattern][0])
}
