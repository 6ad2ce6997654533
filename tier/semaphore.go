package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A Semaphore is a path in a registry at which all processes together may have a fixed number of
// permits. It is safe for concurrent use.
//
// In round trips, with nobody else there and however many permits it is about: one each for Acquire,
// TryAcquire and Release on etcd, PostgreSQL (in tables) and Redis; on ZooKeeper three for Acquire, five for
// TryAcquire, or one if too few are free, and one for Release. What is handed on within the process costs
// none. On ZooKeeper Curator shares the permits; on the other stores nobody else's semaphore is compatible.
//
// It is not reentrant: each Acquire takes more permits. Whoever holds some and waits for more may
// wait for another one who does the same; ask for all at once.
//
// A process that dies keeps its permits for the session timeout; if it was also waiting for some, it keeps
// its place, and nobody behind it gets any for as long, however many are free.
type Semaphore struct {
	registry *Registry
	at       lockKey
	permits  int
	options  *options
	store    second.Semaphore
	invalid  error // why path, number or an option cannot be used, nil if they can
}

// Semaphore returns the semaphore at path, of which all processes together may have so many
// permits. It is cheap and need not be closed; all of one path share what this process has. What
// is wrong with path, number or an option is reported by its methods. Where the store has none, the
// error wraps [errors.ErrUnsupported].
//
// The number is kept with the path, and every process has to give the same: another one gets
// [ErrPermits]. It is forgotten when nobody has permits or waits for some, on ZooKeeper with the path, some
// time after that. To change it there at once, stop all processes that use the path and set its content to
// "tierlock permits=" and the number.
//
// Of the options, [WithHandOff] and [WithMaxWait] go for semaphores, and those of the store's
// package, such as zklock.NodeACL. [WithLinger] and [WithRounds] do not: a permit that nobody
// wants goes at once.
//
// While others queue, a process takes at once its share of all permits, or as many more as its last
// request needs, and hands them on for three times the budget of [WithHandOff]: on its way to another
// process a permit is idle for three round trips, where a lock is for one. A part of all permits that
// was taken at once stays for longer in proportion, half of them for twice as long, but for no more
// than three budgets for each process that queued then. So the first in the queue waits for so long
// and a section at most, whatever it wants, and where requests are alike the others wait for about
// three budgets for each process ahead.
func (r *Registry) Semaphore(path string, permits int, opts ...MutexOption) *Semaphore {
	s := &Semaphore{registry: r, at: lockKey{path, counting}, permits: permits}
	var own []any
	if s.options, own, s.invalid = r.options.forMutex(opts); s.invalid == nil && permits < 1 {
		s.invalid = fmt.Errorf("%d permits in all: want at least one", permits)
	}
	if s.invalid != nil {
		s.invalid = fmt.Errorf("tier: semaphore %s: %w", path, s.invalid)
		return s
	}
	s.store, s.invalid = r.second.Semaphore(path, permits, second.Options{Own: own})
	return s
}

// Path returns the path of the semaphore.
func (s *Semaphore) Path() string { return s.at.path }

// Acquire waits until it has k permits, all of them or none, ctx is done, or an error occurs that
// retrying cannot fix; every waiter of the process then gets that error. While the store cannot be
// reached it keeps trying.
//
// Requests are served whole and in order: processes in the order in which they queue, goroutines of
// a process in the order of their calls. A large request is not overtaken by small ones behind it,
// but for what another process may hand on among its goroutines, see [Registry.Semaphore].
//
// When the wait ended without permits the error is a [*WaitError] as that of [Mutex.Acquire], which says
// which process is ahead in the queue, or that nobody is and too few are free, and how many permits this
// process has itself. After any error nothing of this call is left, or it is removed in the background.
// [ErrPermits] says that the path is for another number of permits.
func (s *Semaphore) Acquire(ctx context.Context, k int) (*Permits, error) {
	return s.take(ctx, "acquire", k, (*pool).enter)
}

// TryAcquire is Acquire without waiting for others: it returns [ErrLocked] if fewer than k permits
// are free, or somebody waits for some, or has only just taken or given up some. While
// [Registry.Err] says that the store cannot be reached it fails at once.
func (s *Semaphore) TryAcquire(ctx context.Context, k int) (*Permits, error) {
	permits, err := s.take(ctx, "try", k, (*pool).try)
	if errors.Is(err, ErrLocked) {
		err = tooFew{s.at.failure("try", fmt.Errorf("fewer than %s free, or somebody waits", permitsOf(k)))}
	}
	return permits, err
}

// tooFew is [ErrLocked] in the words of a semaphore.
type tooFew struct{ error }

func (tooFew) Unwrap() error { return ErrLocked }

func (s *Semaphore) take(ctx context.Context, op string, k int,
	take func(*pool, context.Context, *Semaphore, int, time.Duration) (*Permits, error),
) (*Permits, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	if err := cmp.Or(s.check(k), context.Cause(ctx)); err != nil {
		return nil, s.at.failure(op, err)
	}
	r := s.registry
	p, ok := r.join(s.at, s.permits).(*pool)
	if !ok {
		return nil, s.at.failure(op, ErrClosed)
	}
	if p.permits != s.permits {
		p.part()
		return nil, s.at.failure(op, fmt.Errorf("%w: this process uses the path for %d, and is now asked for %d; use one number everywhere",
			ErrPermits, p.permits, s.permits))
	}
	begun := r.now()
	permits, err := take(p, ctx, s, k, begun)
	if err != nil {
		p.part()
		return nil, r.failed(ctx, op, s.at.path, begun, err)
	}
	permits.begin(p)
	if r.options.observer != nil {
		permits.watch = r.watch(ctx, AcquiredEvent{Path: s.at.path, Permits: permits}, begun, permits.since, permits.lost)
	}
	return permits, nil
}

// check reports a request that can never be served.
func (s *Semaphore) check(k int) error {
	switch {
	case k < 1:
		return fmt.Errorf("%d permits: want at least one", k)
	case k > s.permits:
		return fmt.Errorf("%d permits of %d: there will never be so many; ask for fewer", k, s.permits)
	case k > s.store.Most():
		return fmt.Errorf("%d permits: the store takes no more than %d in one write; ask for fewer", k, s.store.Most())
	}
	return nil
}

// Do calls f while it holds k permits. It is otherwise like [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, k int, f func(ctx context.Context) error) (err error) {
	permits, err := s.Acquire(ctx, k)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, permits.Release()) }()
	return f(permits.Context(ctx))
}

// Contenders returns the processes that have permits, in the order in which they took the first one that
// they still have, and then the queue of those that wait for some. One that has permits and waits for
// more is in both places. On ZooKeeper a process that has permits is there once, and its token is not known;
// elsewhere it is there for each time that it took some in the store. It is otherwise like
// [Mutex.Contenders].
func (s *Semaphore) Contenders(ctx context.Context) ([]Contender, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	all, err := s.store.Contenders(ctx)
	return contenders(all), err
}

// Permits are what one call of Acquire took of a semaphore. They are lost together, and must be
// released exactly once. Methods may be called concurrently.
type Permits struct {
	pool      *pool
	semaphore *Semaphore
	count     int // that are wanted
	taken     []permit
	since     time.Duration // when they came here, on the clock of the leases
	released  atomic.Bool
	lost      context.Context // ends with the loss of any of them
	endLost   context.CancelCauseFunc
	onLoss    []func() bool // stop the watching for a loss
	work      contexts
	watch     *watch // for the observer; nil if there is none
}

// begin is called when they have come.
func (p *Permits) begin(from *pool) {
	p.pool = from
	p.lost, p.endLost = context.WithCancelCause(context.Background())
	for _, one := range p.taken {
		life := one.Context()
		p.onLoss = append(p.onLoss, context.AfterFunc(life, func() { p.endLost(context.Cause(life)) }))
	}
}

func (p *Permits) errAt(now time.Duration) error {
	for _, one := range p.taken {
		if err := one.ErrAt(now); err != nil {
			return err
		}
	}
	return nil
}

// Count returns how many permits they are.
func (p *Permits) Count() int { return len(p.taken) }

// Path returns the path of the semaphore.
func (p *Permits) Path() string { return p.semaphore.at.path }

// Lost returns a channel that is closed when one of the permits is no longer certain to be ours,
// before the store can give it to anybody else; see [Hold.Lost]. After the release it stays as it is.
func (p *Permits) Lost() <-chan struct{} { return p.lost.Done() }

// Err returns nil while all permits are held, an error wrapping [ErrLost] once one is lost, and
// [ErrReleased] once they were released. It reads the clock itself, like [Hold.Err].
func (p *Permits) Err() error {
	err := p.errAt(p.pool.registry.now())
	if p.released.Load() { // asked last: the end of permits that were given up is no loss
		return ErrReleased
	}
	return err
}

// ValidUntil returns up to when the permits are certainly ours, as [Hold.ValidUntil] does.
func (p *Permits) ValidUntil() time.Time {
	if p.Err() != nil {
		return time.Time{}
	}
	return p.taken[0].ValidUntil() // all belong to one session
}

// Token returns the fencing token of the turn in which this process took the permits from the
// store. It is positive, never lower than that of permits that were taken before, and the same for
// those that were taken together or are handed on. As several have permits at a time, a resource
// should not refuse lower ones; it may compare them with the tokens of a lock that came later.
func (p *Permits) Token() int64 { return p.taken[0].Token() }

// Context returns a context for work under the permits, derived from ctx. It is cancelled when one
// of them is lost, with an error wrapping [ErrLost] as its cause, and when they are released, with
// [ErrReleased]; if that has happened, it is done when Context returns. The same ctx gives the same context.
func (p *Permits) Context(ctx context.Context) context.Context {
	return p.work.under(ctx, ctx, p.lost, p.Err)
}

// Release gives the permits up: to goroutines of this process that wait, as far as that is fair, and
// the others in the store. It waits for an unreachable store for a third of the lease at most, after
// which they are removed in the background or go with the session.
//
// It returns nil if all were ours to the end, an error wrapping [ErrLost] if one was lost before,
// and [ErrReleased], without any effect, if they were released before.
func (p *Permits) Release() error {
	if p.released.Swap(true) {
		return ErrReleased
	}
	for _, stop := range p.onLoss {
		stop()
	}
	p.work.end(p.lost)
	defer p.pool.part()
	return p.watch.release(func() error {
		err := p.pool.release(p)
		if errors.Is(err, ErrLost) {
			p.endLost(err)
		}
		return err
	})
}
