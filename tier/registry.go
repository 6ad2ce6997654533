package tier

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Registry holds all locks of this process in one store, over one connection. Use one per
// process and store: another one competes with the first like another process. It is safe
// for concurrent use.
type Registry struct {
	second  second.Tier
	options *options
	start   time.Time // of the clock of the leases

	mu      sync.RWMutex // guards the fields below; taken last
	cohorts map[lockKey]*cohort
	pools   map[string]*pool
	past    Stats // of cohorts that are gone
	closed  bool
	drained chan struct{}  // closed when there are no cohorts; nil before Shutdown
	tasks   sync.WaitGroup // goroutines of the cohorts
}

// New returns a registry over a second tier, for packages such as tierlock and etcdlock. The
// registry owns the tier and closes it. An error says which option is wrong; the tier is then
// left open.
func New(t second.Tier, opts ...Option) (*Registry, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	r := &Registry{second: t, options: &o, start: time.Now().Add(-t.Now()), cohorts: make(map[lockKey]*cohort), pools: make(map[string]*pool)}
	r.past.Losses = make(map[LossCause]int64)
	o.observer.follow(t)
	return r, nil
}

// now is the clock of the leases: who reads it has it for the sums of time as well.
func (r *Registry) now() time.Duration { return r.second.Now() }

// at is the time of day at a time on that clock.
func (r *Registry) at(now time.Duration) time.Time { return r.start.Add(now) }

// Close ends the session of this process in the store, and with it every contender; where the
// store cannot be reached they go when the session times out. Every hold is lost, and whoever
// waits gets [ErrClosed]. It leaves no goroutine and may be called again.
//
// Close waits until the [Observer] has been told of all losses. Called by an observer's Lost, PermitsLost or
// Connection it returns at once, and the rest is done in the background.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	if telling() {
		go r.close()
		return nil
	}
	return r.close()
}

func (r *Registry) close() error {
	err := r.second.Close()
	r.tasks.Wait()
	return err
}

// Err returns nil while the store can be reached as far as this process knows, and otherwise why
// not: a server that falls silent is noticed within two thirds of the session timeout; [ErrClosed] once the
// registry is closed or being shut down. Locks that are held at that time are suspended, not
// lost, for as long as their lease runs. Of a store that can be reached and grants nothing it
// returns a [*QuarantineError].
func (r *Registry) Err() error {
	r.mu.Lock()
	refusing := r.closed || r.draining()
	r.mu.Unlock()
	if refusing {
		return ErrClosed
	}
	if err := r.second.Err(); err != nil {
		return err
	}
	if q := r.second.Quarantine(); q != nil { // else it would be an error that is not nil
		return q
	}
	return nil
}

// taken is what a try fails with that finds somebody of this process in the way.
func (r *Registry) taken() error {
	if errors.Is(r.Err(), ErrClosed) {
		return ErrClosed
	}
	return ErrLocked
}

// Done returns a channel that is closed when the registry is.
func (r *Registry) Done() <-chan struct{} { return r.second.Done() }

// Mutex returns the lock at path. Options are for what is done by way of this mutex; what they
// leave open is as in the registry. A Mutex is cheap and need not be closed; all of one path
// share one gate, and what becomes of the lock at a release goes by the options of the mutex by
// which the owner came. A path that cannot be a lock, or a wrong option, is reported by the
// methods of the mutex.
func (r *Registry) Mutex(path string, opts ...MutexOption) *Mutex {
	return r.mutex(path, second.Exclusive, opts)
}

func (r *Registry) mutex(path string, mode second.Mode, opts []MutexOption) *Mutex {
	m := &Mutex{registry: r, path: path, mode: mode}
	m.key = ownerKey{r, m.lockKey()}
	var own []any
	if m.options, own, m.invalid = r.options.forMutex(opts); m.invalid != nil {
		m.invalid = fmt.Errorf("tier: mutex %s: %w", path, m.invalid)
		return m
	}
	m.claim, m.invalid = r.second.Claim(path, second.Options{Mode: mode, MayLinger: m.options.linger, Own: own})
	return m
}

// join returns the cohort of a lock, which stays until as many calls of part; nil if there is to
// be nothing new.
func (r *Registry) join(key lockKey) *cohort {
	if c := r.joinPresent(key); c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining() {
		return nil
	}
	c := r.cohorts[key]
	if c == nil {
		c = &cohort{registry: r, key: key}
		r.cohorts[key] = c
	}
	c.members.Add(1)
	return c
}

// joinPresent joins a cohort that is there, as on a lock that many want; else it returns nil.
func (r *Registry) joinPresent(key lockKey) *cohort {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c := r.cohorts[key]
	if c == nil || r.draining() {
		return nil
	}
	c.members.Add(1)
	return c
}

// spawn runs f for c, which stays until f ends. It reports false when the registry is
// closed.
func (r *Registry) spawn(c *cohort, f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	c.members.Add(1)
	r.tasks.Go(func() {
		defer r.part(c)
		f()
	})
	return true
}

// begin counts a task that Close waits for, unless the registry is closed.
func (r *Registry) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.tasks.Add(1)
	}
	return !r.closed
}

func (r *Registry) part(c *cohort) {
	for n := c.members.Load(); n > 1; n = c.members.Load() {
		if c.members.CompareAndSwap(n, n-1) {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.members.Add(-1) == 0 {
		delete(r.cohorts, c.key)
		r.past.add(&c.tally) // nobody counts there any more
		r.noteDrained()
	}
}

// heldLock returns what this process has of a lock, the zero HeldLock if it is nothing.
func (r *Registry) heldLock(key lockKey) HeldLock {
	r.mu.Lock()
	c := r.cohorts[key]
	r.mu.Unlock()
	if c == nil {
		return HeldLock{}
	}
	l, _ := c.heldLock()
	return l
}
