package notice

import (
	"errors"
	"sync/atomic"

	"github.com/tierlock/tierlock/internal/second"
)

// A Loss makes sure that the loss of one lock is logged exactly once. Several places in the code may detect the loss; the last of them is
// the release.
type Loss struct{ held, told atomic.Bool }

// Held records that the lock is granted. A waiter that loses its place in the queue loses no lock.
func (l *Loss) Held() { l.held.Store(true) }

// Tell calls log if cause is the loss of a held lock, and no loss of this lock was logged before.
func (l *Loss) Tell(cause error, log func()) {
	if errors.Is(cause, second.ErrLost) && l.held.Load() && !l.told.Swap(true) {
		log()
	}
}
