// Package lease computes until when a process can be sure, by its own clock, that the store has given its locks to no other process. It
// never relies on the word of a server alone.
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

// A Lease covers the contenders that a process has in a store under one session, both waiters and holders. Each session has a Lease of
// its own.
//
// It lasts for its term, counted from the newest time at which the store is known to have counted anew. A hold ends with it for good,
// even if the session turns out to be alive.
type Lease[C covered] struct {
	config Config
	heard  atomic.Int64 // when the store heard of the session, on the clock
	term   atomic.Int64 // a time.Duration

	mu         sync.Mutex // guards the fields below; never held across a call to the store
	contenders map[C]bool // true: held, and not lost to the lease
	held       int
	over       error       // why the session has ended, nil before
	watchdog   *time.Timer // looks at the clock, up to the end of the lease, while something is held; nil before the first
}

// A covered is a contender that a lease covers.
type covered interface {
	comparable
	Lose(reason error) // ends the hold, or the wait; called under the lease's mutex
	IsLost() bool      // that has happened, or it came to its end otherwise
}

// A Config describes a session.
type Config struct {
	Name  string // for errors
	Clock *clock.Clock
	// Vouches reports whether the session still exists, apart from the time of the lease.
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

// Remaining returns for how long the lease lasts if it is not renewed.
func (l *Lease[C]) Remaining() time.Duration { return l.validUntil() - l.config.Clock.Now() }

// Valid reports whether the lease has not run out. Valid reads the clock, so its answer is right even for the first instruction after a
// process was stopped and continued.
func (l *Lease[C]) Valid() bool { return l.ValidAt(l.config.Clock.Now()) }

// ValidAt is Valid for a caller that has just read the clock.
func (l *Lease[C]) ValidAt(now time.Duration) bool {
	return now < l.validUntil() && l.config.Vouches()
}

// Renew counts the lease anew from heard, when the store is known to have received the session's request. If the lease had run out by
// then, Renew first ends all holds.
func (l *Lease[C]) Renew(heard time.Duration) {
	for old := l.heard.Load(); int64(heard) > old; old = l.heard.Load() {
		l.config.Clock.Ask()
		l.Lapse()
		if l.heard.CompareAndSwap(old, int64(heard)) {
			return
		}
	}
}

// Shorten gives the lease another term if that is shorter.
func (l *Lease[C]) Shorten(term time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int64(term) < l.term.Load() {
		l.term.Store(int64(term))
		l.armLocked()
	}
}

// Lapse ends every hold once the lease has run out.
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
			// The mutex is held, so that a concurrent call of Lapse returns only after all holds are lost.
			c.Lose(second.Lost(second.ByLease, "the lease of %s ran out", l.config.Name))
		}
	}
}

// Enrol makes the lease cover a waiting contender. If the session has ended, it returns the reason.
func (l *Lease[C]) Enrol(c C) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, enrolled := l.contenders[c]; l.over == nil && !enrolled { // one that is held stays so
		l.contenders[c] = false
	}
	return l.over
}

// Hold records that an enrolled contender has the lock, unless the session, the lease or the contender has ended.
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

// armLocked sets the watchdog for its next check of the clock, if the lease ends by time and covers a holder.
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

// watch ends the holds if the lease has run out. The machine may have slept through the end, so it checks the clock.
func (l *Lease[C]) watch() {
	l.Lapse()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armLocked()
}

// StopWatchdog is for tests: the timer does not fire any more, as in a process that was stopped. Only a caller that checks the clock then
// sees the end of the lease.
func (l *Lease[C]) StopWatchdog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchdog.Stop()
}

// Lose ends the hold, or the wait, of a covered contender. A contender that has left was given up, and is not lost.
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
		l.watchdog.Stop() // it would keep all this for the term
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

// Contenders returns all covered contenders, each with whether it holds the lock.
func (l *Lease[C]) Contenders() map[C]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.contenders)
}
