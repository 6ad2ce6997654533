package tier_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sessionTimeout = locktest.SessionTimeout

var bubble, dial = locktest.InMemory, locktest.Join

// The function each runs f once for each case. Each run has its own server.
func each[C any](t *testing.T, cases map[string]C, f func(t *testing.T, s *memory.Server, c C)) {
	t.Helper()
	need.Each(t, cases, func(t *testing.T, c C) {
		bubble(t, func(t *testing.T, s *memory.Server) { f(t, s, c) })
	})
}

// cut disconnects a process from the server. It returns when the process has noticed that, while its lease is still valid.
func cut(p *memory.Process) (heal func()) {
	heal = p.Cut()
	p.Renew()
	time.Sleep(p.Patience())
	synctest.Wait()
	return heal
}

// answerLate delays the answers to commands of one kind. Until the answer arrives, the process does not know that the server has executed
// the command.
func answerLate(s *memory.Server, op queue.Op, d time.Duration) {
	s.Script(func(_ string, c queue.Command) (f memory.Fault) {
		if c.Op == op {
			f.After = d
		}
		return f
	})
}

// The function process starts another process and returns its registry. The locks of that process are in strict order.
func process(t *testing.T, s *memory.Server) *tier.Registry {
	t.Helper()
	return named(t, s, "")
}

// The function named starts another process with a label and returns its registry. The locks of that process are in strict order.
func named(t *testing.T, s *memory.Server, label string) *tier.Registry {
	t.Helper()
	locks, _ := dial(t, s, label, tier.WithStrictOrder())
	return locks
}

// The function observed starts another process with an observer and returns its registry.
func observed(t *testing.T, s *memory.Server, o tier.Observer, opts ...tier.Option) *tier.Registry {
	t.Helper()
	locks, _ := dial(t, s, "", append([]tier.Option{tier.WithObserver(o)}, opts...)...)
	return locks
}

// A meter records the commands that a server gets, except those that only keep a session alive.
type meter struct {
	mu  sync.Mutex // guards the field below
	ops []queue.Op
}

func (m *meter) note(_ string, c queue.Command) memory.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.Op != queue.Open && c.Op != queue.Beat && c.Op != queue.Goodbye {
		m.ops = append(m.ops, c.Op)
	}
	return memory.Fault{}
}

// The method take returns the commands that were recorded since the last call of take.
func (m *meter) take() []queue.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	ops := m.ops
	m.ops = nil
	return ops
}

// wantWrites fails the test if the number of commands that changed something since the last call of take or wantWrites is not want.
func (m *meter) wantWrites(t *testing.T, what string, want int) {
	t.Helper()
	ops := m.take()
	need.That(t, fmt.Sprintf("%s: requests %v, want %d writes", what, ops, want), writes(ops) == want)
}

// writes(ops) counts the commands that change something.
func writes(ops []queue.Op) (n int) {
	for _, op := range ops {
		if op == queue.Enter || op == queue.Try || op == queue.Share || op == queue.Leave || op == queue.Ask || op == queue.Weigh {
			n++
		}
	}
	return n
}

// metered runs f in a bubble. f gets a server, the meter of that server, and a function that starts a process and returns its mutex.
func metered(t *testing.T, f func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex)) {
	t.Helper()
	bubble(t, func(t *testing.T, s *memory.Server) {
		m := &meter{}
		s.Script(m.note)
		f(t, s, m, func(opts ...tier.Option) *tier.Mutex {
			locks, _ := dial(t, s, "", opts...)
			return locks.Mutex("/locks/a")
		})
	})
}

// rwMetered is like metered, but with reader/writer locks. All of them have the same path.
func rwMetered(t *testing.T, f func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex)) {
	t.Helper()
	metered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		f(t, s, m, func(opts ...tier.Option) *tier.RWMutex { return tier.RWSibling(process(opts...)) })
	})
}

// The function soon returns a context with a time limit, for a test that might hang otherwise.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, fmt.Errorf("%s hangs", t.Name()))
	t.Cleanup(cancel)
	return ctx
}

// The function times calls f n times and returns the results.
func times[T any](n int, f func() T) (all []T) {
	for range n {
		all = append(all, f())
	}
	return all
}

// The function acquire acquires a lock that is free or will soon become free.
func acquire(t *testing.T, mu *tier.Mutex) *tier.Hold {
	t.Helper()
	return need.Get(mu.Acquire(soon(t)))(t)
}

// The function release releases a hold, permits, or a bundle. It fails the test if that returns an error.
func release(t *testing.T, what interface{ Release() error }) {
	t.Helper()
	wantErr(t, "Release", what.Release(), nil)
}

// must returns the value of a call that has to succeed.
func must[T any](got T, err error) func(testing.TB) T { return need.Get(got, err) }

// errOf returns the error of a call that also returns a value.
func errOf[T any](_ T, err error) error { return err }

var wantErr, closedNow = need.WantErr, need.Closed[struct{}]

// wantQueue fails the test unless the queue of /locks/a has exactly want contenders.
func wantQueue(t *testing.T, s *memory.Server, when string, want int) {
	t.Helper()
	need.Len(t, when+": contenders", s.Queue("/locks/a"), want)
}

// A call is a function call that runs in a new goroutine.
type call[T any] struct {
	done chan struct{} // closed when the function has returned
	got  T
	err  error
}

func begin[T any](f func() (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.got, c.err = f()
	}()
	return c
}

// start starts an Acquire in a new goroutine.
func start(ctx context.Context, mu *tier.Mutex) *call[*tier.Hold] {
	return begin(func() (*tier.Hold, error) { return mu.Acquire(ctx) })
}

// The method blocked waits until the bubble is idle. It fails the test if the call c has returned by then.
func (c *call[T]) blocked(t *testing.T) *call[T] {
	t.Helper()
	synctest.Wait()
	if !c.pending() {
		t.Fatalf("got %v, %v; want it to wait", c.got, c.err)
	}
	return c
}

func (c *call[T]) pending() bool { return !closedNow(c.done) }

// The method granted waits for the result of the call. It fails the test if the result is an error.
func (c *call[T]) granted(t *testing.T) T {
	t.Helper()
	if <-c.done; c.err != nil {
		t.Fatal(c.err)
	}
	return c.got
}

var errChangedMind = errors.New("changed my mind")

// The method cancelled waits for a call whose context was cancelled. It fails the test unless the call returns the cause errChangedMind.
func (c *call[T]) cancelled(t *testing.T) {
	t.Helper()
	<-c.done
	wantErr(t, "a call that was called off", c.err, errChangedMind)
}

// The function closed waits until the bubble is idle and reports whether the channel c is closed then.
func closed(c <-chan struct{}) bool {
	synctest.Wait()
	return closedNow(c)
}

// A special store is the store in memory, with some properties that a test can set.
type special struct {
	second.Tier
	gracePeriod *second.GracePeriodError // if not nil, the store grants nothing until the time that this says
	unseen      bool                     // a process that waits does not know its place
	unleased    bool                     // grants have no lease; the process asks the store whether it still has them
	confirm     func() bool              // returns the store's answer to that question
	errAt       func() error             // returns the state of permits; such permits have no lease; nil: permits are as usual
	life        context.Context          // the context of such permits
	logger      *slog.Logger             // gets the warnings; nil: the warnings are dropped
	lease       time.Duration            // the length of the lease; 0: the usual one
}

// The function specially starts another process that uses a special store, and returns its registry.
func specially(t *testing.T, s *memory.Server, store *special, opts ...tier.Option) *tier.Registry {
	t.Helper()
	store.Tier = s.Dial("", cmp.Or(store.lease, sessionTimeout), nil)
	synctest.Wait() // waits until the process is connected
	locks := tier.New(store, opts...)
	t.Cleanup(func() { locks.Close() })
	return locks
}

func (s *special) Logger() *slog.Logger { return cmp.Or(s.logger, s.Tier.Logger()) }

// The function logged starts another process and returns its registry and its log. The lease is long, because the tests let hours pass:
// with a short lease there would be thousands of renewals.
func logged(t *testing.T, s *memory.Server, opts ...tier.Option) (*tier.Registry, *logtest.Log) {
	t.Helper()
	log, logger := logtest.New(slog.LevelInfo)
	return specially(t, s, &special{logger: logger, lease: time.Hour}, opts...), log
}

func (s *special) GracePeriod() *second.GracePeriodError {
	if s.gracePeriod != nil && time.Now().Before(s.gracePeriod.Until) {
		return s.gracePeriod
	}
	return nil
}

func (s *special) Claim(path string, o second.Options) (second.Claim, error) {
	c, err := s.Tier.Claim(path, o)
	return specialClaim{c, s}, err
}

func (s *special) Semaphore(path string, permits int, o second.Options) (second.Semaphore, error) {
	sem, err := s.Tier.Semaphore(path, permits, o)
	return specialSemaphore{sem, s}, err
}

type specialClaim struct {
	second.Claim
	store *special
}

func (c specialClaim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	if q := c.store.gracePeriod; q != nil {
		if !c.store.unseen {
			w.Stands(func() second.Standing { return second.Standing{GracePeriod: c.store.GracePeriod()} })
		}
		if err := retry.Pause(ctx, time.Until(q.Until)); err != nil {
			return nil, err
		}
	}
	return c.grant(c.Claim.Acquire(ctx, w))
}

func (c specialClaim) TryAcquire(ctx context.Context) (second.Grant, error) {
	if q := c.store.GracePeriod(); q != nil {
		return nil, q.Locked()
	}
	return c.grant(c.Claim.TryAcquire(ctx))
}

func (c specialClaim) Requeue(ctx context.Context, old second.Grant, w *second.Wait) (second.Grant, error) {
	return c.grant(c.Claim.Requeue(ctx, old.(specialGrant).Grant, w))
}

func (c specialClaim) grant(g second.Grant, err error) (second.Grant, error) {
	if err != nil {
		return nil, err
	}
	return specialGrant{g, c.store}, nil
}

type specialGrant struct {
	second.Grant
	store *special
}

func (g specialGrant) Leased() bool { return !g.store.unleased }

func (g specialGrant) Confirm() bool { return g.store.confirm() }

// A specialSemaphore is the semaphore of a special store. Its permits have no lease, or the test determines their state.
type specialSemaphore struct {
	second.Semaphore
	store *special
}

type specialPermit struct {
	second.Permit
	store *special
}

func (specialPermit) Leased() bool { return false }

func (p specialPermit) ErrAt(now time.Duration) error {
	if p.store.errAt == nil {
		return p.Permit.ErrAt(now)
	}
	return p.store.errAt()
}

func (p specialPermit) Context() context.Context {
	if p.store.errAt == nil {
		return p.Permit.Context()
	}
	return p.store.life
}

func (s specialSemaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	return s.special(s.Semaphore.Acquire(ctx, d))
}

func (s specialSemaphore) special(permits []second.Permit, err error) ([]second.Permit, error) {
	for i, one := range permits {
		permits[i] = specialPermit{one, s.store}
	}
	return permits, err
}

func (s specialSemaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	if q := s.store.GracePeriod(); q != nil {
		return nil, q.Locked()
	}
	return s.special(s.Semaphore.TryAcquire(ctx, k))
}

func (s specialSemaphore) Release(permits []second.Permit) error {
	all := make([]second.Permit, len(permits))
	for i, one := range permits {
		all[i] = one.(specialPermit).Permit
	}
	return s.Semaphore.Release(all)
}
