package patterns

import (
	"slices"
	"sync"
	"time"
)

// Waits are the long waits in progress. The observer reports a wait when it has become long, and when it ends.
type Waits struct {
	mu    sync.Mutex             // guards the field below
	begun map[string][]time.Time // by pattern, in order
}

// Long adds a wait that has lasted for a time.
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

// Over removes a wait that began at a time. The recorded beginning of a long wait is a little later, because the clock was read later. An
// earlier recorded one belongs to another wait, and a wait that did not become long is not recorded.
func (w *Waits) Over(pattern string, begun time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, _ := slices.BinarySearchFunc(w.begun[pattern], begun, time.Time.Compare); at < len(w.begun[pattern]) {
		w.begun[pattern] = slices.Delete(w.begun[pattern], at, at+1)
	}
}

// Oldest returns how long the oldest wait has lasted, zero if there is none.
func (w *Waits) Oldest(pattern string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.begun[pattern]) == 0 {
		return 0
	}
	return time.Since(w.begun[pattern][0])
}
