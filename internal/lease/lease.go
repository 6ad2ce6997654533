// Package lease computes until when a process can be sure that the store has not given its locks to another process. The process decides
// that by its own clock, and never relies only on what a server says.
package lease

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/second"
)

// A Lease covers the contenders that a process has in a store under one session, both waiters and holders. Each session has its own Lease.
//
// A Lease lasts for its term. The term starts at the newest time after which the store is known to have received a renewal of the session.
// When the Lease runs out, all holds under it are lost for good, even if the session turns out to be alive.
type Lease[C covered] struct {
	config Config
	heard  atomic.Int64 // the start of the term, on the clock; see Renew
	term   atomic.Int64 // a time.Duration

	mu         sync.Mutex // guards the fields below; never held across a call to the store
	contenders map[C]bool // the value is true for a holder, and false for a waiter or a holder that was lost
	held       int
	over       error       // why the session has ended; nil until then
	watchdog   *time.Timer // checks the clock until the end of the lease, while there is a holder; nil before the first holder
}

// The type covered is the constraint for contenders that a lease covers.
type covered interface {
	comparable
	Lose(reason error) // ends the hold, or the wait; called while the mutex of the lease is locked
	IsLost() bool      // reports whether the hold, or the wait, has ended
}

// A Config describes a session.
type Config struct {
	Name  string // for errors
	Clock *clock.Clock
	// Vouches reports whether the session may still exist. The lease is valid only while Vouches returns true and the term lasts.
	Vouches func() bool
}

// Forever is the term of a lease that does not end by time.
const Forever time.Duration = math.MaxInt64 / 2

// New returns a lease that lasts for term, counted from heard.
func New[C covered](config Config, heard, term time.Duration) *Lease[C] {
	l := &Lease[C]{config: config, contenders: make(map[C]bool)}
	l.heard.Store(int64(heard))
	l.term.Store(int64(term))
	return l
}

func (l *Lease[C]) validUntil() time.Duration { return time.Duration(l.heard.Load() + l.term.Load()) }

// Remaining returns how long the lease still lasts if it is not renewed again.
func (l *Lease[C]) Remaining() time.Duration { return l.validUntil() - l.config.Clock.Now() }

// Valid reports whether the lease is still valid. It reads the clock, so its result is right even if the process was paused and has just
// resumed.
func (l *Lease[C]) Valid() bool { return l.ValidAt(l.config.Clock.Now()) }

// ValidAt is Valid for a caller that has just read the clock.
func (l *Lease[C]) ValidAt(now time.Duration) bool {
	return now < l.validUntil() && l.config.Vouches()
}

// Renew starts the term of the lease again at heard. The store has received a renewal of the session at that time or later. If the lease
// has run out before the call, Renew first ends all holds.
func (l *Lease[C]) Renew(heard time.Duration) {
	for old := l.heard.Load(); int64(heard) > old; old = l.heard.Load() {
		l.config.Clock.Ask()
		l.Lapse()
		if l.heard.CompareAndSwap(old, int64(heard)) {
			return
		}
	}
}

// Shorten replaces the term of the lease if the new term is shorter.
func (l *Lease[C]) Shorten(term time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int64(term) < l.term.Load() {
		l.term.Store(int64(term))
		l.armLocked()
	}
}

// Lapse ends all holds if the lease has run out. Otherwise it does nothing.
func (l *Lease[C]) Lapse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Valid() {
		return
	}
	for c, held := range l.contenders {
		if held {
			l.contenders[c] = false
			l.held--
			// The mutex stays locked, so that a concurrent call of Lapse returns only after all holds are lost.
			c.Lose(second.Lost(second.ByLease, "the lease of %s has ended", l.config.Name))
		}
	}
}

// Enrol makes the lease cover a waiting contender. If the session has ended, it returns the reason.
func (l *Lease[C]) Enrol(c C) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, enrolled := l.contenders[c]; l.over == nil && !enrolled { // a contender that is enrolled already may be a holder, and stays one
		l.contenders[c] = false
	}
	return l.over
}

// Hold records that an enrolled contender has the lock. It returns false, and records nothing, if the session or the lease has ended, or
// the contender is lost or not enrolled.
func (l *Lease[C]) Hold(c C) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, enrolled := l.contenders[c]; !enrolled || l.over != nil || !l.Valid() || c.IsLost() {
		return false
	}
	l.contenders[c] = true
	l.held++
	l.armLocked()
	return true
}

// armLocked sets the watchdog for its next check of the clock. It does nothing if the term is Forever, or the lease covers no holder.
func (l *Lease[C]) armLocked() {
	in := l.config.Clock.Left(l.validUntil())
	switch {
	case l.held == 0 || l.term.Load() == int64(Forever):
	case l.watchdog == nil:
		l.watchdog = time.AfterFunc(in, l.watch)
	default:
		l.watchdog.Reset(in)
	}
}

// watch is called by the watchdog. It ends the holds if the lease has run out by the clock, and otherwise sets the watchdog again.
func (l *Lease[C]) watch() {
	l.Lapse()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armLocked()
}

// StopWatchdog is for tests. It stops the timer, as if the process was paused. Only a check of the clock then shows that the lease has run
// out.
func (l *Lease[C]) StopWatchdog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchdog.Stop()
}

// Lose ends the hold, or the wait, of a covered contender. If the contender has left the lease, it was given up, and Lose does nothing.
func (l *Lease[C]) Lose(c C, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, enrolled := l.contenders[c]; enrolled {
		c.Lose(reason)
	}
}

// Leave removes a contender from the lease.
func (l *Lease[C]) Leave(c C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.contenders[c] {
		l.held--
	}
	delete(l.contenders, c)
	if l.held == 0 && l.watchdog != nil {
		l.watchdog.Stop() // otherwise the timer would keep the lease in memory until the end of the term
	}
}

// Over reports whether the session has ended.
func (l *Lease[C]) Over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over != nil
}

// End records the end of the session: all contenders of the lease are lost.
func (l *Lease[C]) End(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return
	}
	l.over = reason
	for c := range l.contenders {
		c.Lose(second.Lost(second.BySession, "%s: %w", l.config.Name, reason))
	}
}

// Contenders returns all covered contenders. The value is true for those that hold the lock.
func (l *Lease[C]) Contenders() map[C]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.contenders)
}
