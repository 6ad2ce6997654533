package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A store is Redis as this process sees it, over a client that belongs to somebody else: the
// session with its lease, the channel by which it is told of its turn, and the reaper of what is left
// over.
type store struct {
	client  redis.UniversalClient
	options options
	origin  time.Time // of the store's monotonic clock
	owner   owner     // what contenders say of this process
	name    string    // of this process at Redis
	count   atomic.Int64

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc

	sessions sessions
	byID     sync.Map // of contenders that may be in a queue
	reaper   *reaper.Reaper[remains]
	declared atomic.Bool // that the server is new
	notice   *notice.Connection

	lag       atomic.Int64          // a time.Duration; see [store.quarantine]
	primaries sync.Map              // by address, what was last met there
	problem   atomic.Pointer[error] // why Redis does not answer, nil if it does
	up        mutexbool.Bool        // problem is nil
	renew     mutexbool.Bool        // the keeper is to ask at once

	mu     sync.Mutex // guards the fields below; taken last, never held across a request
	closed bool
	tasks  sync.WaitGroup // every goroutine of the store
}

// open returns a store over client and begins a session.
func open(client redis.UniversalClient, o options) *store {
	s := &store{client: client, options: o, origin: time.Now(), owner: newOwner(o.label), name: newName()}
	if single, ok := client.(*redis.Client); ok {
		s.client = single.WithTimeout(s.patience()) // of its connections, or a call outlives its end
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.sessions.changed = make(chan struct{})
	s.reaper = reaper.New(reaper.Config[remains]{
		Remove: s.remove, Await: s.up.Wait, Spawn: s.spawn, Context: s.ctx,
	})
	s.notice = notice.NewConnection(notice.Config{
		Logger: o.logger, Package: "redislock", Store: "Redis", Why: s.Err,
		Patience: func() time.Duration { return o.ttl / 3 },
	})
	s.up.Set()
	s.notice.Reach(true)
	s.spawn(func() { s.notice.Run(s.ctx) })
	s.spawn(s.keep)
	s.spawn(s.listen)
	return s
}

// newName is nobody else's.
func newName() string {
	var id [16]byte
	rand.Read(id[:]) // cannot fail
	return hex.EncodeToString(id[:])
}

// newID is that of a contender. The script finds the process in it.
func (s *store) newID() string { return s.name + "." + strconv.FormatInt(s.count.Add(1), 36) }

// Claim returns what queues for the lock at path.
func (s *store) Claim(path string, o second.Options) (second.Claim, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	if len(o.Own) > 0 {
		return nil, fmt.Errorf("redislock: lock %s: option of type %T; want a tier.Option", path, o.Own[0])
	}
	return &claim{store: s, path: path, keys: keysOf(path), mode: o.Mode, linger: o.MayLinger}, nil
}

// Err returns nil while Redis answers, there may be a session, and messages may come, [second.ErrClosed] at the end.
func (s *store) Err() error { return cmp.Or(s.outage(), s.sessions.deafness()) }

// outage is why there is no lock to be had.
func (s *store) outage() error {
	if s.ctx.Err() != nil {
		return second.ErrClosed
	}
	if problem := s.problem.Load(); problem != nil {
		return *problem
	}
	_, refused, _ := s.sessions.now()
	return refused
}

// Quarantine is the time before which a primary that began anew, or took over, grants nothing.
func (s *store) Quarantine() *second.QuarantineError { return s.notice.Quarantined() }

// Now is the clock of the leases.
func (s *store) Now() time.Duration { return s.now() }

func (s *store) now() time.Duration { return time.Since(s.origin) }

func (s *store) Done() <-chan struct{} { return s.ctx.Done() }

func (s *store) Notify(f func(second.Connection)) { s.notice.Notify(f) }

// Close loses every grant and removes all that this process has in queues, unless Redis cannot be
// reached. The client stays open.
func (s *store) Close() error {
	if s.end() {
		s.tasks.Wait()
		s.sayGoodbye()
	}
	s.tasks.Wait()
	return nil
}

// end loses every grant and begins nothing new. It reports false if that has been done.
func (s *store) end() bool {
	s.mu.Lock()
	ended := s.closed
	s.closed = true
	s.mu.Unlock()
	if ended {
		return false
	}
	s.cancel(second.ErrClosed)
	if x, _, _ := s.sessions.now(); x != nil {
		x.End(second.ErrClosed)
	}
	return true
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

// call makes one request, and waits no longer for its answer than that is worth: by default the
// client waits on, whatever becomes of the context.
func call[T any](s *store, ctx context.Context, request func(context.Context) (T, error)) (answer T, err error) {
	type result struct {
		answer T
		err    error
	}
	results := make(chan result, 1)
	bounded, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	if !s.spawn(func() {
		answer, err := request(bounded)
		results <- result{answer, err}
	}) {
		return answer, second.ErrClosed
	}
	select {
	case r := <-results:
		answer, err = r.answer, r.err
	case <-bounded.Done():
		err = context.Cause(bounded)
	}
	switch outcome := classify(err); {
	case outcome == done || outcome == permanent:
		s.reached()
	case errors.Is(err, redis.ErrClosed): // the program has closed its client
		s.end()
		err = second.ErrClosed
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		s.missed(err)
	}
	return answer, err
}

func (s *store) reached() {
	s.problem.Store(nil)
	s.up.Set()
	s.notice.Reach(true)
}

// missed notes that Redis does not serve. The keeper finds out when it is back.
func (s *store) missed(err error) {
	problem := fmt.Errorf("Redis cannot be reached: %w", err)
	if classify(err) == refused {
		problem = fmt.Errorf("Redis does not serve: %w", err)
	}
	s.up.Clear()
	s.problem.Store(&problem)
	s.sessions.stir() // a try does not wait any more
	s.notice.Reach(false)
	s.renew.Set()
}

// patience is how long a request may take: a try is worth no more, as several have to fit into
// what a lease survives.
func (s *store) patience() time.Duration { return max(s.options.ttl/6, 500*time.Millisecond) }

// explain adds to the end of a wait why Redis could not be reached, if that is so.
func (s *store) explain(cause error) error {
	if problem := s.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

func (s *store) margin() time.Duration {
	if s.options.margin > 0 {
		return s.options.margin
	}
	return s.options.ttl / 3
}
