package tier

import (
	"context"
	"errors"
	"fmt"

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
	path     string
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
	s := &Semaphore{registry: r, path: path, permits: permits}
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
func (s *Semaphore) Path() string { return s.path }

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
		err = &tooFewError{s.path, k}
	}
	return permits, err
}

// A tooFewError is [ErrLocked] in the words of a semaphore.
type tooFewError struct {
	path string
	k    int
}

func (e *tooFewError) Error() string {
	return fmt.Sprintf("tier: try %s: fewer than %s free, or somebody waits", e.path, permitsOf(e.k))
}

func (e *tooFewError) Unwrap() error { return ErrLocked }

func (s *Semaphore) take(ctx context.Context, op string, k int, take func(*pool, context.Context, *claimant) error) (*Permits, error) {
	err := s.check(k)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, s.failure(op, err)
	}
	p, err := s.registry.joinPool(s.path, s.permits)
	if err != nil {
		return nil, s.failure(op, err)
	}
	c := &claimant{semaphore: s, count: k, turn: make(chan struct{})}
	if o := s.registry.options.observer; o != nil {
		return o.take(ctx, p, c, op == "acquire", take)
	}
	if err := take(p, ctx, c); err != nil {
		s.registry.partPool(p)
		return nil, err
	}
	return newPermits(p, c), nil
}

func (s *Semaphore) failure(op string, err error) error {
	if s.invalid != nil { // which says it all
		return err
	}
	return fmt.Errorf("tier: %s %s: %w", op, s.path, err)
}

// check reports a request that can never be served.
func (s *Semaphore) check(k int) error {
	switch {
	case s.invalid != nil:
		return s.invalid
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
