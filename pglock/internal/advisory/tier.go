package advisory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/second"
)

// A Tier is the advisory locks of a database as this process sees them.
type Tier struct {
	config Config
	origin time.Time // of the monotonic clock
	owner  owner     // what is said of this process

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc
	notice *notice.Connection

	mu       sync.Mutex // guards the fields below; never held across a request
	closed   bool
	tasks    sync.WaitGroup // every goroutine of the tier
	ear      *line          // nil while there is none
	problem  error          // why there is none
	refused  bool           // which retrying does not fix
	changed  chan struct{}  // closed when one of these does
	sessions map[uint32]*session
	spares   []*session
	waiters  map[*Contender]struct{}
	views    map[int64][]place // of the queues in which they wait
}

// Open returns a tier and begins to connect.
func Open(c Config) *Tier {
	t := &Tier{config: c, origin: time.Now(), owner: newOwner(c.Label),
		changed: make(chan struct{}), sessions: make(map[uint32]*session),
		waiters: make(map[*Contender]struct{}), views: make(map[int64][]place)}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.problem = errUntried
	t.notice = notice.NewConnection(notice.Config{
		Logger: c.Logger, Package: "pglock", Store: "PostgreSQL", Why: t.Err,
		Patience: func() time.Duration { return c.TTL / 3 },
	})
	t.spawn(func() { t.notice.Run(t.ctx) })
	t.spawn(t.hear)
	return t
}

// errUntried says that it is not known yet whether the server can be reached.
var errUntried = errors.New("PostgreSQL has not been reached yet")

// Claim returns what queues for the lock at path.
func (t *Tier) Claim(path string, o second.Options) (second.Claim, error) {
	if err := t.config.CheckPath(path); err != nil {
		return nil, err
	}
	if len(o.Own) > 0 {
		return nil, fmt.Errorf("pglock: lock %s: option of type %T; want a tier.Option", path, o.Own[0])
	}
	return &claim{tier: t, path: path, key: KeyOf(path), mode: o.Mode, linger: o.MayLinger}, nil
}

// Semaphore is refused.
func (t *Tier) Semaphore(path string, _ int, _ second.Options) (second.Semaphore, error) {
	return nil, fmt.Errorf("pglock: semaphore %s: PostgreSQL has none here; ZooKeeper has: %w", path, errors.ErrUnsupported)
}

// Err returns nil while the server answers, [second.ErrClosed] at the end.
func (t *Tier) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return second.ErrClosed
	}
	return t.problem
}

// Quarantine is the time before which the server, which was started or promoted, gives no lock to anybody.
func (t *Tier) Quarantine() *second.QuarantineError { return t.notice.Quarantined() }

// dial makes a connection, and notes what the server says of its quarantine.
func (t *Tier) dial(ctx context.Context, heard func(*pgconn.PgConn, *pgconn.Notification)) (*line, error) {
	sent := time.Now()
	l, err := dial(ctx, t.config, t.patience(), heard)
	if err != nil {
		return nil, err
	}
	t.notice.Quarantine(l.calm, sent, "the server was started or promoted, and first used less than a lease ago")
	return l, nil
}

// Now is the clock of the leases.
func (t *Tier) Now() time.Duration { return time.Since(t.origin) }

func (t *Tier) Done() <-chan struct{} { return t.ctx.Done() }

func (t *Tier) Notify(f func(second.Connection)) { t.notice.Notify(f) }

// Close loses every grant and closes all connections, with which the server gives the locks away.
func (t *Tier) Close() error {
	t.mu.Lock()
	ended := t.closed
	t.closed = true
	sessions := t.sessions
	t.sessions = make(map[uint32]*session)
	ear := t.ear
	t.mu.Unlock()
	if !ended {
		t.cancel(second.ErrClosed)
		for _, x := range sessions {
			x.End(second.ErrClosed)
		}
		if ear != nil {
			ear.hurry(time.Time{})
		}
		var all sync.WaitGroup
		for _, x := range sessions {
			all.Go(x.close)
		}
		all.Wait()
	}
	t.tasks.Wait()
	return nil
}

// spawn runs f as a task of the tier, whose end Close waits for. It reports false when the tier
// is closed.
func (t *Tier) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spawnLocked(f)
}

func (t *Tier) spawnLocked(f func()) bool {
	if t.closed {
		return false
	}
	t.tasks.Go(f)
	return true
}

// scope returns a context that ends with ctx or the tier, and its end.
func (t *Tier) scope(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(second.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// await waits until the server can be reached, or for who is not patient, until it is known whether it can. It
// returns at once if that will not be as things stand.
func (t *Tier) await(ctx context.Context, patient bool) error {
	for {
		t.mu.Lock()
		problem, refused, changed := t.problem, t.refused, t.changed
		t.mu.Unlock()
		switch {
		case problem == nil:
			return nil
		case refused, !patient && problem != errUntried: //nolint:errorlint // nobody wraps it
			return problem
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return t.explain(context.Cause(ctx))
		}
	}
}

// report says how the ear is.
func (t *Tier) report(ear *line, problem error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ear, t.problem = ear, nil
	if ear == nil {
		t.problem = fmt.Errorf("PostgreSQL cannot be reached: %w", problem)
		t.refused = t.config.Permanent(problem)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// explain adds to the end of a wait why the server could not be reached, if that is so.
func (t *Tier) explain(cause error) error {
	if problem := t.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// patience is how long a request may take that waits for nobody.
func (t *Tier) patience() time.Duration { return max(t.config.TTL/6, 500*time.Millisecond) }

// beat is how often the server has to hear of this process.
func (t *Tier) beat() time.Duration { return t.config.TTL / 4 }
