package pglock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A store is the database as this process sees it: the session, the queues that are followed, and the
// reaper of what is left over.
type store struct {
	pool     *pgxpool.Pool // somebody else's
	requests *pgxpool.Pool
	options  options
	origin   time.Time // of the store's monotonic clock
	host     string    // for people to read

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc
	wires  context.Context // ends when nothing is to be said any more
	hangUp context.CancelFunc

	sessions sessions
	queues   queues
	reaper   *reaper.Reaper[remains]
	notice   *notice.Connection

	problem atomic.Pointer[error] // why the server does not answer, nil if it does
	up      mutexbool.Bool        // problem is nil
	nudge   nudge                 // of the keeper, who waits for notifications

	mu     sync.Mutex // guards the fields below; taken last, never held across a request
	closed bool
	tasks  sync.WaitGroup // every goroutine of the store
}

// open returns a store that begins to ask for a session.
func open(pool *pgxpool.Pool, o options) (*store, error) {
	s := &store{pool: pool, options: o, origin: time.Now()}
	s.host, _ = os.Hostname()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.wires, s.hangUp = context.WithCancel(context.Background())
	s.sessions.changed = make(chan struct{})
	s.queues.byPath = make(map[string]*queue)
	s.queues.toRead = make(map[string]struct{})
	var err error
	if s.requests, err = pgxpool.NewWithConfig(s.wires, s.config()); err != nil {
		s.hangUp()
		return nil, err
	}
	s.reaper = reaper.New(reaper.Config[remains]{
		Remove: s.remove, Await: s.up.Wait, Spawn: s.spawn, Context: s.ctx,
	})
	s.notice = notice.NewConnection(notice.Config{
		Logger: o.logger, Package: "pglock", Store: "PostgreSQL", Why: s.Err,
		Patience: func() time.Duration { return o.ttl / 3 },
	})
	s.up.Set()
	s.notice.Reach(true)
	s.spawn(func() { s.notice.Run(s.ctx) })
	s.spawn(s.keep)
	return s, nil
}

// Claim returns what queues for the lock at path.
func (s *store) Claim(path string, o second.Options) (second.Claim, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	if len(o.Own) > 0 {
		return nil, fmt.Errorf("pglock: lock %s: option of type %T; want a tier.Option", path, o.Own[0])
	}
	return &claim{store: s, path: path, mode: o.Mode, linger: o.MayLinger}, nil
}

// Semaphore is refused.
func (s *store) Semaphore(path string, _ int, _ second.Options) (second.Semaphore, error) {
	return nil, fmt.Errorf("pglock: semaphore %s: PostgreSQL has none here; ZooKeeper has: %w", path, errors.ErrUnsupported)
}

// Err returns nil while the server answers and there may be a session, [second.ErrClosed] at the end.
func (s *store) Err() error {
	if s.ctx.Err() != nil {
		return second.ErrClosed
	}
	if problem := s.problem.Load(); problem != nil {
		return *problem
	}
	_, refused, _ := s.sessions.now()
	return refused
}

// Quarantine is the time before which the server gives no lock to anybody: it was promoted, and may not know to
// whom the one before it has.
func (s *store) Quarantine() *second.QuarantineError { return s.notice.Quarantined() }

// hush takes over for how long a server has said that it gives no lock to anybody, in answer to what was sent then.
func (s *store) hush(ms int64, sent time.Time) {
	s.notice.Quarantine(time.Duration(ms)*time.Millisecond, sent, "the server was promoted, and first used less than a lease ago")
}

// Now is the clock of the leases.
func (s *store) Now() time.Duration { return s.now() }

func (s *store) Done() <-chan struct{} { return s.ctx.Done() }

func (s *store) Notify(f func(second.Connection)) { s.notice.Notify(f) }

// Close loses every grant and ends the session, and with it deletes the contenders, unless the server
// cannot be reached; that takes two seconds at most.
func (s *store) Close() error {
	s.mu.Lock()
	ended := s.closed
	s.closed = true
	s.mu.Unlock()
	if !ended {
		s.cancel(second.ErrClosed)
		s.nudge.poke()
		if x := s.sessions.last(); x != nil {
			x.End(second.ErrClosed)
		}
	}
	s.tasks.Wait()
	defer time.AfterFunc(time.Second, s.hangUp).Stop()
	s.requests.Close()
	s.hangUp()
	return nil
}

// spawn runs f as a task of the store, whose end Close waits for. It reports false when the
// store is closed.
func (s *store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.tasks.Go(f)
	return true
}

// scope returns a context that ends with ctx or the store, and its end.
func (s *store) scope(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(second.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// call makes one request, with a deadline of its own. When one is not answered, the keeper finds out
// when the server is back, and whether the session is still there.
func (s *store) call(ctx context.Context, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	err := request(bounded)
	switch {
	case answered(err):
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		s.missed(err)
	}
	return err
}

// reached notes that the server answers.
func (s *store) reached() {
	s.problem.Store(nil)
	s.up.Set()
	s.notice.Reach(true)
}

// missed notes that a request was not answered.
func (s *store) missed(err error) {
	problem := fmt.Errorf("PostgreSQL cannot be reached: %w", err)
	s.up.Clear()
	s.problem.Store(&problem)
	s.sessions.stir() // a try does not wait any more
	s.notice.Reach(false)
	s.requests.Reset() // the other connections may be as dead
	s.nudge.poke()
}

// patience is how long a request may take: a try is worth no more, as several have to fit into
// what a lease survives.
func (s *store) patience() time.Duration { return max(s.options.ttl/6, 500*time.Millisecond) }

// explain adds to the end of a wait why the server could not be reached, if that is so.
func (s *store) explain(cause error) error {
	if problem := s.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// now is the store's monotonic clock.
func (s *store) now() time.Duration { return time.Since(s.origin) }
