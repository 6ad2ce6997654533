package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Registry holds all locks of this process in one store, over one connection. Use one per
// process and store: another one competes with the first like another process. It is safe
// for concurrent use.
type Registry struct {
	second  second.Tier
	options *options
	open    context.Context // ends when nobody new is let in, and whoever waits gives up: at a shutdown, and with the second tier
	refuse  func()          // ends it

	leaks leaks // see [WithLeakDetection]

	mu      sync.RWMutex // guards the fields below; taken last
	stakes  map[lockKey]stake
	credits *credits
	past    Stats // of cohorts that are gone
	closed  bool
	warned  map[lockKey]bool // semaphores about whose number of permits there was a warning
	drained context.Context  // ends when nobody new is let in and there are no stakes any more, and with the second tier
	allGone func()           // ends it
	tasks   sync.WaitGroup   // goroutines of the stakes, and calls of the observer in other goroutines than the callers'

	closing sync.Once
	ended   chan struct{} // closed when the second tier is closed
	failure error         // of that; valid then
	gone    chan struct{} // closed when there are no tasks any more
}

// New returns a registry over a second tier, for the packages of this module's stores, which have refused
// options that are wrong. Programs have no use for it. The registry owns the tier and closes it.
func New(t second.Tier, opts ...Option) *Registry {
	o := defaults
	for _, opt := range opts {
		opt.(option)(&o)
	}
	r := &Registry{
		second: t, options: &o, ended: make(chan struct{}), gone: make(chan struct{}),
		stakes: make(map[lockKey]stake), credits: newCredits(), past: Stats{Losses: make(map[LossCause]int64)},
		warned: make(map[lockKey]bool),
	}
	r.open, r.refuse = context.WithCancel(t.Context())
	r.drained, r.allGone = context.WithCancel(t.Context())
	r.tasks.Add(1)
	context.AfterFunc(r.open, func() {
		defer r.tasks.Done()
		for _, s := range r.all() {
			s.turnAway()
		}
	})
	r.follow()
	return r
}

// now is the clock of the leases: who reads it has it for the sums of time as well.
func (r *Registry) now() time.Duration { return r.second.Now() }

// at is the time of day at a time on that clock. It counts back from now: that clock counts the sleep of the machine, and those of
// package time do not.
func (r *Registry) at(t time.Duration) time.Time {
	ago := r.now() - t
	return time.Now().Add(-ago)
}

// Close ends the session of this process in the store, and with it every contender; where the
// store cannot be reached they go when the session times out. Every hold is lost, and all waits end with
// [ErrClosed]. Close may be called again, and from anywhere: a callback of the [Observer], a logger,
// under a hold.
//
// Close returns within six seconds, whatever code of the program does. It waits for the last lines of the logger and for
// callbacks that run in goroutines of the registry, a second for each; that includes the callbacks about losses that
// Close itself brings about. What runs longer goes on after Close has returned, and nothing else does: no
// other goroutine is left, and no other callback begins, but for those in a goroutine that calls Acquire or Release.
// So a callback that calls Close gets its answer after a second, as Close waits for it in vain.
//
// The error says that the store's client is still at work after five seconds, in a dialer of the program for example.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.closing.Do(func() {
		go func() {
			r.failure = r.second.Close() // which ends all waits, but sends nothing for each
			close(r.ended)
			r.tasks.Wait()
			close(r.gone)
		}()
	})
	select {
	case <-r.ended:
	case <-time.After(closeTime):
		return errors.New("tier: close: the client of the store is still at work")
	}
	select {
	case <-r.gone:
	case <-time.After(callbackTime):
	}
	return r.failure
}

// Close waits so long for the second tier, which takes three seconds at most unless code of the program is at work there, and after that
// for callbacks.
const closeTime, callbackTime = 5 * time.Second, time.Second

// call runs f, which calls the observer, in a goroutine that is none of a caller's. Once the registry is closed it does nothing.
func (r *Registry) call(f func()) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.tasks.Add(1)
	r.mu.Unlock()
	defer r.tasks.Done()
	f()
}

// Err returns nil while the store can be reached as far as this process knows, and otherwise why
// not: a server that falls silent is noticed within two thirds of the session timeout; [ErrClosed] once the
// registry is closed or being shut down. Locks that are held at that time are suspended, not
// lost, for as long as their lease runs. Of a store that can be reached and grants nothing it
// returns a [*GracePeriodError].
//
// A store may answer, and still refuse each acquisition or each release: it has no memory or disk left, say, or has become read-only.
// Err returns the last refusal once that has lasted for 3 s without a request that was served, and for as long as it lasts.
// All these errors but a [*GracePeriodError] and ErrClosed wrap [ErrUnavailable].
func (r *Registry) Err() error {
	if r.draining() {
		return ErrClosed
	}
	if err := r.second.Err(); err != nil {
		return err
	}
	if q := r.second.GracePeriod(); q != nil { // else it would be an error that is not nil
		return (*GracePeriodError)(q)
	}
	return r.second.Refusal()
}

// Done returns a channel that is closed when the registry is.
func (r *Registry) Done() <-chan struct{} { return r.second.Context().Done() }

// Shutdown ends the work of the registry in good order: whoever waits and whoever comes gets
// [ErrClosed]; owners may finish, and enter again with the contexts of their holds; when the last
// hold is released, the registry is closed.
//
// Owners are not told. End first what holds a lock until it is told to end, such as a campaign of
// package election.
//
// If ctx ends first, the registry is closed all the same and the holds that are left are lost; the
// error then wraps the cause of ctx and names their locks. Call it once; Close may be called at any
// time.
func (r *Registry) Shutdown(ctx context.Context) error {
	r.refuse()
	r.mu.Lock()
	r.noteDrainedLocked()
	r.mu.Unlock()
	var err error
	select {
	case <-r.drained.Done():
	case <-ctx.Done():
		err = fmt.Errorf("tier: shutdown: still in use: %s: %w", r.paths(), context.Cause(ctx))
	}
	return cmp.Or(err, r.Close())
}

func (r *Registry) draining() bool { return r.open.Err() != nil }

// noteDrainedLocked is called when there may be no stakes any more.
func (r *Registry) noteDrainedLocked() {
	if r.draining() && len(r.stakes) == 0 {
		r.allGone()
	}
}

func (r *Registry) all() []stake {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.stakes))
}

// paths returns those of the locks and semaphores that somebody still has a stake in.
func (r *Registry) paths() string {
	var paths []string
	for _, s := range r.all() {
		paths = append(paths, s.base().key.path)
	}
	slices.Sort(paths)
	return strings.Join(slices.Compact(paths), ", ")
}

// A stake is what this process has at one path: a cohort for a lock, a pool for permits.
type stake interface {
	base() *members
	turnAway()    // ends all waits with [ErrClosed], as nobody is let in any more
	addTo(*Stats) // adds what it counts
}

// A lockKey tells the stakes of a registry apart: one path can be that of a mutex and of a
// reader/writer lock, which exclude each other like locks of two processes.
type lockKey struct {
	path string
	kind kind
}

type kind int8

const (
	exclusive kind = iota
	readWrite
	counting
)

// members are the callers, holders and tasks of a stake, which goes with the last of them.
type members struct {
	registry *Registry
	key      lockKey
	number   atomic.Int64 // the first one comes, and the last one goes, under registry.mu
	mu       sync.Mutex   // guards what is below, and the stake; never held across a client call or a wait
	alarm    alarm        // about the first who waits
}

func (m *members) base() *members { return m }

// failure wraps an error that does not come from the second tier and so names no path yet.
func (k lockKey) failure(op string, err error) error {
	return fmt.Errorf("tier: %s %s: %w", op, k.path, err)
}

// join returns a stake, which stays until as many calls of part; nil if there is to be nothing new. It is for permits by way
// of a semaphore, or else for a lock.
func (r *Registry) join(key lockKey, permits *Semaphore) stake {
	r.mu.RLock() // most often it is there, as of a lock that many want
	s := r.stakes[key]
	if s != nil && !r.draining() {
		defer r.mu.RUnlock()
		s.base().number.Add(1)
		return s
	}
	r.mu.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining() {
		return nil
	}
	if s = r.stakes[key]; s == nil {
		s = &cohort{members: members{registry: r, key: key}, credit: r.credits.of(key)}
		if permits != nil {
			s = &pool{members: members{registry: r, key: key}, last: new(second.Demand),
				given: permits.permits, permits: permits.permits, store: permits.store}
		}
		r.stakes[key] = s
	}
	s.base().number.Add(1)
	return s
}

// mostWarned bounds what the registry remembers of its warnings.
const mostWarned = 1024

// warnOnce reports whether to warn that the store has another number of permits: once for each path, while there are not too many.
func (r *Registry) warnOnce(key lockKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned[key] || len(r.warned) >= mostWarned {
		return false
	}
	r.warned[key] = true
	return true
}

// spawn runs f as a task, of which Close waits for the end. When the registry is closed it reports false, and whatever was to
// come of f is no matter any more: every grant is lost, and whoever waits learns by himself that the second tier is done.
func (m *members) spawn(f func()) bool {
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	m.number.Add(1)
	r.tasks.Go(func() {
		defer m.part()
		f()
	})
	return true
}

func (m *members) part() {
	for n := m.number.Load(); n > 1; n = m.number.Load() {
		if m.number.CompareAndSwap(n, n-1) {
			return
		}
	}
	r := m.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.number.Add(-1) == 0 {
		m.alarm.stop()
		if c, ok := r.stakes[m.key].(*cohort); ok {
			r.past.sum(&c.tally) // nobody counts there any more
			r.credits.remember(m.key, c.credit)
		}
		delete(r.stakes, m.key)
		r.noteDrainedLocked()
	}
}

// Stats are figures of a registry: of now, and sums since it was made.
type Stats struct {
	Holds     int // locks that are held
	Lingering int // locks that are kept though nobody holds them
	Waiters   int // goroutines that wait for a lock

	// Of semaphores, which count nowhere else here; an [Observer] can tell more.
	Permits       int // that are held
	PermitWaiters int // goroutines that wait for some

	// Acquisitions are turns: locks that were acquired, without those that were entered again. How
	// each came is counted in one of Found to Joins.
	Acquisitions int64
	Found        int64 // in the store, with nobody there
	HandOvers    int64 // in the store, behind another contender: most often, from another process
	HandOffs     int64 // from another goroutine of this process, at its release
	Resumptions  int64 // from this process, where it lingered
	Joins        int64 // to read, beside others of this process that read

	// GiveUps are releases that gave the lock back to the store and were answered. GiveUpTime is how long these answers took in all.
	// The mean, GiveUpTime / GiveUps, is the time of a transfer to another process as far as this process can measure it; see
	// [WithHandOff].
	GiveUps    int64
	GiveUpTime time.Duration

	// Groups are requests to the store that had commands about several locks, as on ZooKeeper many that wait leave together, and
	// Grouped is how many commands these were.
	Groups, Grouped int64

	// Losses are holds that were lost, by cause. A loss counts from when it happens, also while its owner has yet to release the hold.
	Losses map[LossCause]int64

	WaitTime time.Duration // of all waits, those included that go on or were in vain
	HoldTime time.Duration // for which locks were held, those included that still are; however many read at a time
}

// A LossCause says how a lock was lost.
type LossCause string

const (
	LossOfLease    LossCause = LossCause(second.ByLease)    // the lease ran out: the store was not heard from
	LossOfSession  LossCause = LossCause(second.BySession)  // the store ended the session
	LossByDeletion LossCause = LossCause(second.ByDeletion) // somebody deleted the contender
	LossByClose    LossCause = LossCause(second.ByClose)    // the registry was closed
	LossOtherwise  LossCause = LossCause(second.ByOther)    // such as a permission that was taken away
)

// A Source says from where a lock came to its owner.
type Source string

const (
	Found      Source = "found"      // nobody was there
	HandOver   Source = "hand-over"  // from another contender in the store
	HandOff    Source = "hand-off"   // from another goroutine of this process
	Resumption Source = "resumption" // it lingered in this process
	Join       Source = "join"       // others of this process read, too
)

// A source is an index into sources.
type source int8

const (
	found source = iota
	handedOver
	handedOff
	resumed
	joined
)

var sources = [...]Source{Found, HandOver, HandOff, Resumption, Join}

// A tally is what a cohort counts, guarded by its mutex. A sum of times is the sum of all ends minus the sum
// of all beginnings, on the registry's clock. For each wait or hold that has not ended, whoever reads the sum
// adds the present time. An overflow in between cancels out.
type tally struct {
	came                 [len(sources)]int64
	given                int64
	waited, held, giving time.Duration
	losses               map[LossCause]int64 // nil while there are none
}

// lose counts so many holds that were lost.
func (t *tally) lose(err error, holds int64) {
	if t.losses == nil {
		t.losses = make(map[LossCause]int64)
	}
	t.losses[LossCause(second.CauseOf(err))] += holds
}

// sum adds what a cohort has counted.
func (s *Stats) sum(t *tally) {
	s.Found += t.came[found]
	s.HandOvers += t.came[handedOver]
	s.HandOffs += t.came[handedOff]
	s.Resumptions += t.came[resumed]
	s.Joins += t.came[joined]
	s.Acquisitions = s.Found + s.HandOvers + s.HandOffs + s.Resumptions + s.Joins
	s.GiveUps += t.given
	s.GiveUpTime += t.giving
	s.WaitTime += t.waited
	s.HoldTime += t.held
	for cause, holds := range t.losses {
		s.Losses[cause] += holds
	}
}

// Stats returns figures of all locks and semaphores of the registry. It asks nobody, and is not a snapshot of one
// instant.
func (r *Registry) Stats() Stats {
	r.mu.RLock()
	s, stakes := r.past, slices.Collect(maps.Values(r.stakes))
	s.Losses = maps.Clone(s.Losses)
	r.mu.RUnlock()
	s.Groups, s.Grouped = r.second.Groups()
	for _, one := range stakes {
		one.addTo(&s)
	}
	return s
}

// A HeldLock is one that this process has.
type HeldLock struct {
	Path      string
	Token     int64
	Since     time.Time // when the present owner got it, or the first of those who read; or it began to linger
	Readers   int       // who have it at the same time, as it is held to read; else 0
	Waiters   int       // goroutines of this process that wait for it
	Lingering bool      // nobody holds it, but it is kept
}

// HeldLocks returns the locks that this process has, in order of their paths. Permits of semaphores are
// not among them.
func (r *Registry) HeldLocks() []HeldLock {
	var locks []HeldLock
	for _, s := range r.all() {
		if c, ok := s.(*cohort); ok {
			if l, ok := c.heldLock(); ok {
				locks = append(locks, l)
			}
		}
	}
	slices.SortFunc(locks, func(a, b HeldLock) int { return cmp.Compare(a.Path, b.Path) })
	return locks
}
