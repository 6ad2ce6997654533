package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A store is etcd as this process sees it, over a client that belongs to somebody else: the
// session with its lease, the queues that are watched, and the reaper of what is left over.
type store struct {
	client  *clientv3.Client
	options options
	origin  time.Time // of the store's monotonic clock
	owner   owner     // what keys say of this process

	ctx    context.Context // ends, with cause ErrClosed, at Close or with the client
	cancel context.CancelCauseFunc
	detach func() bool // from the client

	sessions sessions
	queues   queues
	reaper   *reaper.Reaper[remains]
	notice   *notice.Connection

	problem atomic.Pointer[error] // why etcd does not answer, nil if it does
	up      mutexbool.Bool        // problem is nil
	renew   mutexbool.Bool        // the keeper is to ask at once

	mu     sync.Mutex // guards the fields below; taken last, never held across a request
	closed bool
	tasks  sync.WaitGroup // every goroutine of the store
}

// open returns a store over client and begins to ask for a lease.
func open(client *clientv3.Client, o options) *store {
	s := &store{client: client, options: o, origin: time.Now(), owner: newOwner(o.label)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.sessions.changed = make(chan struct{})
	s.queues.byPath = make(map[string]*queue)
	s.reaper = reaper.New(reaper.Config[remains]{
		Remove: s.remove, Await: s.up.Wait, Spawn: s.spawn, Context: s.ctx,
	})
	s.notice = notice.NewConnection(notice.Config{
		Logger: o.logger, Package: "etcdlock", Store: "etcd", Why: s.Err,
		Patience: func() time.Duration { return s.ttl() / 3 },
	})
	s.up.Set()
	s.notice.Reach(true)
	s.spawn(func() { s.notice.Run(s.ctx) })
	s.spawn(s.keep)
	s.detach = context.AfterFunc(client.Ctx(), s.end)
	return s
}

// Claim returns what queues for the lock at path.
func (s *store) Claim(path string, o second.Options) (second.Claim, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	if len(o.Own) > 0 {
		return nil, fmt.Errorf("etcdlock: lock %s: option of type %T; want a tier.Option", path, o.Own[0])
	}
	return &claim{store: s, path: path, mode: o.Mode, linger: o.MayLinger}, nil
}

// Err returns nil while etcd answers, [second.ErrClosed] at the end.
func (s *store) Err() error {
	if s.ctx.Err() != nil {
		return second.ErrClosed
	}
	if problem := s.problem.Load(); problem != nil {
		return *problem
	}
	if s.client.ActiveConnection().GetState() == connectivity.TransientFailure {
		return errors.New("etcd cannot be reached: no connection")
	}
	return nil
}

// Quarantine is none: a cluster that answers knows who holds.
func (s *store) Quarantine() *second.QuarantineError { return nil }

// Now is the clock of the leases.
func (s *store) Now() time.Duration { return s.now() }

func (s *store) Done() <-chan struct{} { return s.ctx.Done() }

func (s *store) Notify(f func(second.Connection)) { s.notice.Notify(f) }

// Close loses every grant, revokes the etcd lease, and with it deletes the keys, unless etcd
// cannot be reached; that takes a second at most. The client stays open.
func (s *store) Close() error {
	s.detach()
	s.end()
	s.tasks.Wait()
	return nil
}

// end loses every grant and begins nothing new.
func (s *store) end() {
	s.mu.Lock()
	ended := s.closed
	s.closed = true
	s.mu.Unlock()
	if ended {
		return
	}
	s.cancel(second.ErrClosed)
	if x := s.sessions.last(); x != nil {
		x.End(second.ErrClosed)
	}
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

// call makes one request, with a deadline of its own: without one, the client waits for as
// long as there is no connection, or for a server that hangs.
func (s *store) call(ctx context.Context, request func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	err := request(bounded)
	switch {
	case answered(err):
		s.problem.Store(nil)
		s.up.Set()
		s.notice.Reach(true)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		s.missed(err)
	}
	return err
}

// missed notes that a request was not answered. The keeper finds out when etcd is back.
func (s *store) missed(err error) {
	problem := fmt.Errorf("etcd cannot be reached: %w", err)
	s.up.Clear()
	s.problem.Store(&problem)
	s.notice.Reach(false)
	s.renew.Set()
}

// patience is how long a request may take: a try is worth no more, as several have to fit into
// what a lease survives.
func (s *store) patience() time.Duration { return max(s.ttl()/6, 500*time.Millisecond) }

// ttl is that of the present session, or the one to ask for.
func (s *store) ttl() time.Duration {
	if x := s.sessions.last(); x != nil {
		return x.ttl
	}
	return s.options.ttl
}

// explain adds to the end of a wait why etcd could not be reached, if that is so.
func (s *store) explain(cause error) error {
	if problem := s.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// now is the store's monotonic clock.
func (s *store) now() time.Duration { return time.Since(s.origin) }

func (s *store) margin(ttl time.Duration) time.Duration {
	if s.options.margin > 0 {
		return s.options.margin
	}
	return ttl / 3
}
