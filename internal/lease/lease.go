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

// A Lease covers what a process has in a store under one session: contenders that queue,
// and those of them that are held. It begins anew, as another Lease, with each session.
//
// It runs for its term from the time since which the store is known to count. A hold ends
// with it for good, even if the session turns out to be alive.
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

// A covered is a contender under a lease.
type covered interface {
	comparable
	Lose(reason error) // ends the hold, or the wait; called under the lease's mutex
	IsLost() bool      // that has happened, or it came to its end otherwise
}

// A Config is what there is to know of a session.
type Config struct {
	Name  string // for errors
	Clock *clock.Clock
	// Vouches reports whether the session stands, as far as its time does not tell.
	Vouches func() bool
}

// Forever is the term of a lease that time does not end.
const Forever time.Duration = math.MaxInt64 / 2

// New returns a lease that runs for term from heard.
func New[C covered](config Config, heard, term time.Duration) *Lease[C] {
	l := &Lease[C]{config: config, contenders: make(map[C]bool)}
	l.heard.Store(int64(heard))
	l.term.Store(int64(term))
	return l
}

func (l *Lease[C]) validUntil() time.Duration { return time.Duration(l.heard.Load() + l.term.Load()) }

// Remaining returns for how long the lease still runs if it is not renewed.
func (l *Lease[C]) Remaining() time.Duration { return l.validUntil() - l.config.Clock.Now() }

// Valid reports whether the lease still runs. It reads the clock, so it is right at the
// first instruction of a process that was stopped.
func (l *Lease[C]) Valid() bool { return l.ValidAt(l.config.Clock.Now()) }

// ValidAt is Valid for one that has just read the clock.
func (l *Lease[C]) ValidAt(now time.Duration) bool {
	return now < l.validUntil() && l.config.Vouches()
}

// Renew notes that the store has heard of the session at a time. Locks that were held when the lease ended are lost before that.
func (l *Lease[C]) Renew(heard time.Duration) {
	for old := l.heard.Load(); int64(heard) > old; old = l.heard.Load() {
		l.config.Clock.Ask()
		l.Lapse()
		if l.heard.CompareAndSwap(old, int64(heard)) {
			return
		}
	}
}

// Shorten gives the lease another term, unless that is longer.
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
			// Under the mutex: a concurrent call of Lapse finds all lost.
			c.Lose(second.Lost(second.ByLease, "the lease of %s ran out", l.config.Name))
		}
	}
}

// Enrol has the lease cover a contender that queues. It reports why not if the session has
// ended.
func (l *Lease[C]) Enrol(c C) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, enrolled := l.contenders[c]; l.over == nil && !enrolled { // one that is held stays so
		l.contenders[c] = false
	}
	return l.over
}

// Hold makes an enrolled contender a held one, unless session, lease or contender are gone.
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

// armLocked sets the watchdog for its next look at the clock, if time ends the lease and there is anything to lose.
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

// watch ends the holds if the lease is over, which the machine may have slept through.
func (l *Lease[C]) watch() {
	l.Lapse()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armLocked()
}

// StopWatchdog is for tests: it makes the process blind for the end of its lease, as one is
// that was stopped. Only who looks at the clock knows.
func (l *Lease[C]) StopWatchdog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchdog.Stop()
}

// Lose ends the hold, or the wait, of a contender that is covered. One that has left was given up, and
// is lost no more.
func (l *Lease[C]) Lose(c C, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, enrolled := l.contenders[c]; enrolled {
		c.Lose(reason)
	}
}

// Leave ends the cover of a contender.
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

// End says that the session is over: all that the lease covers is lost.
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

// Contenders returns all that the lease covers, and of each whether it is held.
func (l *Lease[C]) Contenders() map[C]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.contenders)
}
