package notice

import (
	"errors"
	"sync/atomic"

	"github.com/tierlock/tierlock/internal/second"
)

// A Loss sees to it that the loss of one lock is logged, and once: it may become known in
// several ways, and at the release at the latest.
type Loss struct{ held, told atomic.Bool }

// Held says that the lock is granted. Who loses a place in a queue loses no lock.
func (l *Loss) Held() { l.held.Store(true) }

// Tell calls log unless cause is no loss, or was told before.
func (l *Loss) Tell(cause error, log func()) {
	if errors.Is(cause, second.ErrLost) && l.held.Load() && !l.told.Swap(true) {
		log()
	}
}
