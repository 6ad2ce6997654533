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

// A Registry manages all locks of this process in one store, with one session. Use one registry per process and store, because a second
// registry competes with the first registry like another process. A Registry is safe for concurrent use.
type Registry struct {
	second  second.Tier
	options *options
	open    context.Context // ends when new calls are refused and waiters have to leave: at a shutdown, and when the second tier ends
	refuse  func()          // ends the context open

	leaks leaks // see [WithLeakDetection]

	mu      sync.RWMutex // guards the fields below; if another mutex is also needed, this one is locked last
	stakes  map[lockKey]stake
	credits *credits
	past    Stats // what the removed cohorts counted
	closed  bool
	warned  map[lockKey]bool // semaphores for which a warning about their number of permits was logged
	drained context.Context  // ends when new calls are refused and the last stake is removed, and when the second tier ends
	allGone func()           // ends the context drained
	tasks   sync.WaitGroup   // goroutines of cohorts and pools, and calls of the observer that do not run in a caller's goroutine

	closing sync.Once
	ended   chan struct{} // closed when the second tier is closed
	failure error         // the error of closing the second tier; valid after ended is closed
	gone    chan struct{} // closed when the last task has ended
}

// New returns a registry for a store. Only the constructors of this module's stores call New, after they have checked their options. The
// registry owns t and closes it.
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

// now reads the clock of the leases. Callers also use its value for durations.
func (r *Registry) now() time.Duration { return r.second.Now() }

// Registry.at converts a time of the clock of the leases to a time of day. It subtracts the elapsed time from the present time, because the
// clock of the leases counts the sleep of the machine, and package time does not.
func (r *Registry) at(t time.Duration) time.Time {
	ago := r.now() - t
	return time.Now().Add(-ago)
}

// Close ends the session of this process, and so deletes all its queue entries. If the store cannot be reached, the entries are deleted
// when the session times out. All holds are lost, and all waits end with [ErrClosed]. To let holders finish first, use
// [Registry.Shutdown]. Close may be called several times and from any goroutine, also from a callback of the [Observer] or the logger.
//
// Close returns within six seconds. Close waits up to a second for the logger, and up to a second for running callbacks of the observer.
// Slower callbacks finish after Close has returned. When Close returns, all other goroutines of the registry have ended. After Close has
// returned, callbacks begin only in goroutines that call Acquire or Release. If a callback calls Close, Close always waits for the whole
// second, because that callback is still running.
//
// An error means that the client of the store is still busy after five seconds, for example in the program's dialer.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.closing.Do(func() {
		go func() {
			r.failure = r.second.Close() // this ends all waits, but sends no request for each of them
			close(r.ended)
			r.tasks.Wait()
			close(r.gone)
		}()
	})
	select {
	case <-r.ended:
	case <-time.After(closeTime):
		return errors.New("tier: close: the client of the store is still busy")
	}
	select {
	case <-r.gone:
	case <-time.After(callbackTime):
	}
	return r.failure
}

// Close waits up to closeTime for the second tier, and then up to callbackTime for callbacks. The second tier takes up to three seconds,
// unless code of the program blocks it.
const closeTime, callbackTime = 5 * time.Second, time.Second

// The method call runs f, which calls the observer, as a task that Close waits for. If the registry is closed, it does not run f.
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

// Err returns nil while the store can be reached and grants locks, as far as this process knows. Err sends no request. In all other states
// Err returns:
//
//   - [ErrClosed] after Close or Shutdown was called;
//   - a [*GracePeriodError] while the store answers but grants no lock yet;
//   - an error that wraps [ErrUnavailable] in all other cases. One cause is that the store does not answer, which this process notices
//     within two thirds of T. The other cause is that the store has refused every acquisition or every release for 3 s, for example because
//     it is full or read-only.
//
// During an outage, locks stay held until their lease ends. Caution: a readiness probe that uses Err takes all replicas out of service at
// once, because all replicas use the same store.
func (r *Registry) Err() error {
	if r.draining() {
		return ErrClosed
	}
	if err := r.second.Err(); err != nil {
		return err
	}
	if q := r.second.GracePeriod(); q != nil { // a nil *GracePeriodError, returned as an error, would not equal nil
		return (*GracePeriodError)(q)
	}
	return r.second.Refusal()
}

// Done returns a channel that is closed when the registry is closed.
func (r *Registry) Done() <-chan struct{} { return r.second.Context().Done() }

// Shutdown refuses new acquisitions, ends waits with [ErrClosed], and blocks until the last hold is released. Then Shutdown closes the
// registry. During Shutdown, holders continue, and may acquire reentrantly with the contexts of their holds.
//
// Shutdown does not interrupt holders. First stop work that would hold a lock without end, such as a campaign of package election.
//
// If ctx ends first, Shutdown closes the registry, and the remaining holds are lost. The error then wraps the cause of ctx, and names the
// lost locks. Otherwise the error is that of [Registry.Close]. Call Shutdown once. Close may be called at any time.
func (r *Registry) Shutdown(ctx context.Context) error {
	r.refuse()
	r.mu.Lock()
	r.noteDrainedLocked()
	r.mu.Unlock()
	var err error
	select {
	case <-r.drained.Done():
	case <-ctx.Done():
		err = fmt.Errorf("tier: shutdown: these locks were still held: %s: %w", r.paths(), context.Cause(ctx))
	}
	return cmp.Or(err, r.Close())
}

func (r *Registry) draining() bool { return r.open.Err() != nil }

// noteDrainedLocked is called when the last lock or semaphore may have gone out of use.
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

// The method paths returns the paths of the locks and semaphores that goroutines of this process still hold or wait for.
func (r *Registry) paths() string {
	var paths []string
	for _, s := range r.all() {
		paths = append(paths, s.base().key.path)
	}
	slices.Sort(paths)
	return strings.Join(slices.Compact(paths), ", ")
}

// A stake is the state of this process at one path: a cohort for a lock, a pool for permits.
type stake interface {
	base() *members
	turnAway()    // ends all waits with [ErrClosed], because new calls are refused
	addTo(*Stats) // adds the counters of this stake
}

// A lockKey identifies a stake of a registry. The kind is part of the key, because a mutex and a reader/writer lock may have the same path.
// They exclude each other like locks of two processes.
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

// The type members counts the callers, holders and tasks of a stake. When the number becomes 0, the stake is removed.
type members struct {
	registry *Registry
	key      lockKey
	number   atomic.Int64 // changes from and to 0 only while registry.mu is locked
	mu       sync.Mutex   // guards the field below and the stake; never locked during a call of the client or a wait
	alarm    alarm        // watches how long the first waiter waits
}

func (m *members) base() *members { return m }

// failure wraps an error that does not come from the second tier, because such an error does not name the path yet.
func (k lockKey) failure(op string, err error) error {
	return fmt.Errorf("tier: %s %s: %w", op, k.path, err)
}

// join returns the stake of key and adds a member to it. Each member calls part once; the last call removes the stake. If new calls are
// refused, join returns nil. If permits is nil, the stake is a cohort, and otherwise a pool.
func (r *Registry) join(key lockKey, permits *Semaphore) stake {
	r.mu.RLock() // in most cases the stake exists, because many goroutines use the same lock
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

// mostWarned limits the number of paths about which the registry warns.
const mostWarned = 1024

// warnOnce reports whether to warn that the store has another number of permits. It returns true once for each path, until mostWarned paths
// were warned about.
func (r *Registry) warnOnce(key lockKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned[key] || len(r.warned) >= mostWarned {
		return false
	}
	r.warned[key] = true
	return true
}

// spawn runs f in a goroutine, and Close waits for its end. When the registry is closed, spawn returns false and does not run f. Callers
// need not handle that: every grant is lost by then, and each waiter gets an error from the closed second tier.
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
			r.past.sum(&c.tally) // the cohort counts nothing after this
			r.credits.remember(m.key, c.credit)
		}
		delete(r.stakes, m.key)
		r.noteDrainedLocked()
	}
}

// Stats are statistics of a registry: current values, and sums since the registry was created.
type Stats struct {
	Holds     int // number of held locks
	Lingering int // number of idle locks that this process keeps, see [WithLinger]
	Waiters   int // number of goroutines that wait for a lock

	// Figures of semaphores. No other figure includes semaphores.
	Permits       int // number of held permits
	PermitWaiters int // number of goroutines that wait for permits

	// Acquisitions counts acquired locks, without reentrant acquisitions. Each acquisition is also counted in one of the fields Found to
	// Joins.
	Acquisitions int64
	Found        int64 // acquired from the store, without contention
	HandOvers    int64 // acquired from the store, after a wait for another queue entry, usually of another process
	HandOffs     int64 // handed off by another goroutine of this process
	Resumptions  int64 // acquired while this process kept the idle lock
	Joins        int64 // acquired for reading, together with other readers of this process

	// GiveUps counts answered releases that gave the lock back to the store, and GiveUpTime sums how long the answers took. The mean
	// GiveUpTime / GiveUps estimates the duration of a transfer to another process; see [WithHandOff].
	GiveUps    int64
	GiveUpTime time.Duration

	// Groups counts requests that combined commands about several locks, as batches on ZooKeeper do. Grouped counts the commands in these
	// requests.
	Groups, Grouped int64

	// Losses counts lost holds by cause. A hold is counted at the moment of its loss, before its owner releases it.
	Losses map[LossCause]int64

	WaitTime time.Duration // sum of all waits, including running and failed waits
	HoldTime time.Duration // sum of the time in which locks were held, including current holds; overlapping readers count once
}

// A LossCause is the reason for the loss of a lock.
type LossCause string

const (
	LossOfLease    LossCause = LossCause(second.ByLease)    // the lease ended: the store did not answer in time
	LossOfSession  LossCause = LossCause(second.BySession)  // the store ended the session
	LossByDeletion LossCause = LossCause(second.ByDeletion) // the queue entry was deleted
	LossByClose    LossCause = LossCause(second.ByClose)    // the registry was closed
	LossOtherwise  LossCause = LossCause(second.ByOther)    // another cause, such as a revoked permission
)

// A Source says from where a goroutine got a lock.
type Source string

const (
	Found      Source = "found"      // acquired from the store, without contention
	HandOver   Source = "hand-over"  // acquired from the store, after a wait for another queue entry, usually of another process
	HandOff    Source = "hand-off"   // handed off by another goroutine of this process
	Resumption Source = "resumption" // acquired while this process kept the idle lock (WithLinger)
	Join       Source = "join"       // acquired for reading, together with other readers of this process
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

// A tally has the counters of a cohort, guarded by the cohort's mutex. A sum of times is the sum of all ends minus the sum of all
// beginnings, on the registry's clock. For each wait or hold that has not ended, the reader of the sum adds the present time. The sum may
// overflow in between, but the result is right.
type tally struct {
	came                 [len(sources)]int64
	given                int64
	waited, held, giving time.Duration
	losses               map[LossCause]int64 // nil while there are none
}

// lose counts the holds that were lost together with the given error.
func (t *tally) lose(err error, holds int64) {
	if t.losses == nil {
		t.losses = make(map[LossCause]int64)
	}
	t.losses[LossCause(second.CauseOf(err))] += holds
}

// The method sum adds the counters of a cohort.
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

// Stats returns statistics of all locks and semaphores of the registry. It sends no request. The values are not a snapshot of one instant.
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

// A HeldLock is a lock that this process holds, or keeps idle because of [WithLinger].
type HeldLock struct {
	Path      string
	Token     int64
	Since     time.Time // when the present owner, or the first reader, acquired it; or when it became idle
	Readers   int       // present readers; 0 for a write hold
	Waiters   int       // goroutines of this process that wait for it
	Lingering bool      // idle, and kept by WithLinger
}

// HeldLocks returns the locks that this process holds or keeps idle, sorted by path. It does not return permits of semaphores, and sends
// no request.
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
