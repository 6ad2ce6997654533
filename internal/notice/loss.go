package notice

import (
	"errors"
	"sync/atomic"

	"github.com/tierlock/tierlock/internal/second"
)

// A Loss makes sure that the loss of one lock is logged exactly once: it may be detected in several places, at the release at the latest.
type Loss struct{ held, told atomic.Bool }

// Held records that the lock is granted. A waiter that loses its place in the queue loses no lock.
func (l *Loss) Held() { l.held.Store(true) }

// Tell calls log unless cause is no loss, or a loss was logged before.
func (l *Loss) Tell(cause error, log func()) {
	if errors.Is(cause, second.ErrLost) && l.held.Load() && !l.told.Swap(true) {
		log()
	}
}
