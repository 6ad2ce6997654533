package tiertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/oracle"
)

// A scene is the state of one test: a lock, and a record of the holds of that lock.
type scene struct {
	*witness
	Harness
	path string

	mu     sync.Mutex // guards the fields below
	holds  map[*hold]bool
	grants []*hold    // all grants, in the order in which they came
	taken  []*portion // all portions of permits, in the order in which they were taken
	tokens oracle.Tokens
	total  int // the number of permits; 0 as long as no test has set it
}

func newScene(w *witness, h Harness) *scene {
	name := strings.ReplaceAll(w.Name(), "/", "-")
	return &scene{witness: w, Harness: h, path: "/tiertest/" + name, holds: make(map[*hold]bool)}
}

// ample is a lease that a busy machine can keep: a process may fail to renew it for a while.
const ample = 20 * time.Second

// The method lease returns the lease of processes that keep their lease throughout a test.
func (s *scene) lease() time.Duration {
	if s.Virtual {
		return s.Lease
	}
	return ample
}

// The method slack returns the time that limits allow for a busy machine. It is less than a third of the lease of the processes, which is
// the shortest wait that counts as an error.
func (s *scene) slack() time.Duration {
	if s.Virtual {
		return s.Lease / 8
	}
	return ample / 4
}

// The method patience returns the limit for events that have to happen at some time.
func (s *scene) patience() time.Duration {
	if s.Virtual {
		return 6 * s.Lease
	}
	return 2 * ample
}

// The method moment returns the time in which immediate effects appear on an idle machine. No test fails if they take longer.
func (s *scene) moment() time.Duration { return s.Lease / 50 }

// A proc is a process, together with its claim on the scene's lock.
type proc struct {
	*Process
	scene *scene
	lease time.Duration
	claim claim
}

// A claim is a second.Claim whose Acquire needs no Wait. A test that asks for the place of a contender calls the Acquire with a Wait.
type claim struct{ second.Claim }

func (c claim) Acquire(ctx context.Context) (second.Grant, error) {
	return c.Claim.Acquire(ctx, new(second.Wait))
}

func (c claim) Requeue(ctx context.Context, old second.Grant) (second.Grant, error) {
	return c.Claim.Requeue(ctx, old, new(second.Wait))
}

func (s *scene) process() *proc {
	s.Helper()
	return s.processIn(s.witness.TB, s.lease())
}

// The method victim starts a process with the short lease Lease. A test uses it if the lease ends, or if it waits for a part of the lease.
func (s *scene) victim() *proc {
	s.Helper()
	return s.processIn(s.witness.TB, s.Lease)
}

// processIn starts a process. The process, and everything that the harness needs for it, ends with tb.
func (s *scene) processIn(tb testing.TB, lease time.Duration) *proc {
	s.Helper()
	p := &proc{Process: s.Dial(tb, lease), scene: s, lease: lease}
	tb.Cleanup(func() { p.Close() })
	return p.as(second.Exclusive)
}

// proc.as returns the same process with a claim in another mode.
func (p *proc) as(m second.Mode) *proc {
	p.scene.Helper()
	return p.with(second.Options{Mode: m})
}

func (p *proc) with(o second.Options) *proc {
	p.scene.Helper()
	c, err := p.Claim(p.scene.path, o)
	if err != nil {
		p.scene.Fatalf("Claim: %v", err)
	}
	return &proc{p.Process, p.scene, p.lease, claim{c}}
}

// A scope is a part of a test. Its cleanups run at the end of that part.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

func (s *scene) processes(n int) []*proc {
	var all []*proc
	for range n {
		all = append(all, s.process())
	}
	return all
}

// A hold is a grant that the scene has recorded.
type hold struct {
	second.Grant
	scene  *scene
	open   bool // readers of other processes may share the lock; guarded by scene.mu
	kept   bool // released without a loss; guarded by scene.mu
	number int  // the number of the grant, in the order of grants
}

// The method enter records a grant at the moment when it is made.
func (s *scene) enter(g second.Grant) *hold {
	h := &hold{Grant: g, scene: s, open: g.Shared()}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := oracle.Lock{Room: oracle.Everybody, Tokens: s.tokens}
	for other := range s.holds {
		if other.Err() == nil {
			l.Inside = append(l.Inside, other.turn())
		}
	}
	if g.Token() <= 0 {
		s.Errorf("token %d", g.Token())
	}
	s.grants = append(s.grants, h)
	h.number = len(s.grants)
	l, err := l.Enter(h.turn())
	if err != nil {
		s.Errorf("a grant: %v", err)
	}
	s.tokens, s.holds[h] = l.Tokens, true
	return h
}

// The method turn returns the hold in the form that the oracle checks. Here no token passes from one owner to the next. Therefore each
// grant counts as a process of its own.
func (h *hold) turn() oracle.Turn {
	return oracle.Turn{Process: h.number, Weight: oracle.Weight(h.open), Token: h.Token()}
}

// scene.last returns the newest grant.
func (s *scene) last() *hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[len(s.grants)-1]
}

// The method leave records that a hold is about to end.
func (h *hold) leave() {
	h.scene.mu.Lock()
	defer h.scene.mu.Unlock()
	delete(h.scene.holds, h)
}

func (h *hold) Release() error {
	h.leave()
	return h.released(h.Grant.Release())
}

// The method released records the result of a release. If the result is a loss, the context of the grant must have ended. Otherwise that
// context must never end.
func (h *hold) released(err error) error {
	if errors.Is(err, second.ErrLost) && h.Context().Err() == nil {
		h.scene.Errorf("a release has found a loss, but the context has not ended: %v", err)
	}
	h.scene.mu.Lock()
	h.kept = err == nil
	h.scene.mu.Unlock()
	return ifKnown(h.Grant, err)
}

// ifKnown returns the error of a release, or nil if the process cannot know the result. Without a lease, an unanswered release cannot tell
// whether there was a loss.
func ifKnown(given interface{ Leased() bool }, err error) error {
	if errors.Is(err, second.ErrLost) || errors.Is(err, second.ErrReleased) || given.Leased() {
		return err
	}
	return nil
}

// noFalseLoss checks the contexts of grants that were released without a loss. None of them may have ended.
func (s *scene) noFalseLoss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.grants {
		if h.kept && h.Context().Err() != nil {
			s.Errorf("the context of a grant has ended that was released without a loss: %v", context.Cause(h.Context()))
			return // one report is enough
		}
	}
	for _, p := range s.taken {
		if p.kept && p.life.Err() != nil {
			s.Errorf("the context of permits has ended that were released without a loss: %v", context.Cause(p.life))
			return
		}
	}
}

// The method lost returns the loss of the grant. It checks that all methods of the grant report the same loss.
func (h *hold) lost() error {
	if err := h.Err(); !errors.Is(err, second.ErrLost) {
		return fmt.Errorf("Err is: %w", err)
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, second.ErrLost) {
		return fmt.Errorf("the cause of the context is: %w", cause)
	}
	return nil
}

// A call is a function call that runs in a goroutine of its own.
type call struct {
	scene  *scene
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid when done is closed
}

// The method call starts a call. The call ends with the test at the latest.
func (s *scene) call(ctx context.Context, f func(context.Context) error) *call {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.patience(), errors.New("it hangs"))
	c := &call{scene: s, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		defer cancel()
		c.err = f(ctx)
	}()
	s.Cleanup(func() {
		cancel()
		<-c.done
	})
	return c
}

func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// The method end waits for the end of the call.
func (c *call) end() {
	c.scene.Helper()
	select {
	case <-c.done:
	case <-time.After(3 * c.scene.patience()):
		c.scene.Fatalf("a call hangs")
	}
}

// call.waits reports whether the call is still waiting after a moment.
func (c *call) waits() bool {
	select {
	case <-c.done:
		return false
	case <-time.After(2 * c.scene.moment()):
		return true
	}
}

// The method leaves checks that the call fails as soon as its caller leaves.
func (c *call) leaves() {
	c.scene.Helper()
	c.scene.within(0, "a cancelled call", func() {
		c.cancel()
		c.end()
	})
	if c.err == nil {
		c.scene.Errorf("granted by a store that does not answer")
	}
}

func (c *call) failure() error { return c.err }

// The method wait checks that none of the calls ends.
func (s *scene) wait(calls ...interface {
	ended() bool
	failure() error
}) {
	s.Helper()
	s.settled()
	for _, c := range calls {
		if c.ended() {
			s.Errorf("a call that has to wait was granted, or failed: %v", c.failure())
		}
	}
}

// The method settled waits for a moment, in which a call that wrongly does not wait would end.
func (s *scene) settled() { time.Sleep(s.moment()) }

// A request is a call that acquires the lock.
type request struct {
	*call
	hold *hold // the result, valid when the call has ended
}

func (s *scene) begin(ctx context.Context, acquire func(context.Context) (second.Grant, error)) *request {
	r := new(request)
	r.call = s.call(ctx, func(ctx context.Context) error {
		g, err := acquire(ctx)
		if err == nil {
			r.hold = s.enter(g)
		}
		return err
	})
	return r
}

func (r *request) granted() *hold {
	r.scene.Helper()
	if r.end(); r.err != nil {
		r.scene.Fatalf("not granted: %v", r.err)
	}
	return r.hold
}

// The method settle waits for the end of a call that may fail. If the call got the lock, the method releases it.
func (r *request) settle() {
	r.scene.Helper()
	if r.end(); r.err == nil {
		r.scene.release(r.hold)
	}
}

func (p *proc) begin(call func(context.Context) (second.Grant, error)) *request {
	return p.scene.begin(p.scene.Context(), call)
}

func (p *proc) acquire() *hold {
	p.scene.Helper()
	return p.begin(p.claim.Acquire).granted()
}

// The method queue starts to acquire the lock. It returns when the new contender is visible from outside.
func (p *proc) queue() *request {
	p.scene.Helper()
	want := p.scene.present() + 1
	r := p.begin(p.claim.Acquire)
	p.scene.awaitLeft(want)
	return r
}

// The method requeue gives h up and queues again. It does not wait for the new grant.
func (p *proc) requeue(ctx context.Context, h *hold) *request {
	h.leave()
	return p.scene.begin(ctx, func(ctx context.Context) (second.Grant, error) { return p.claim.Requeue(ctx, h.Grant) })
}

// The method refused checks that a try fails because the lock is held.
func (p *proc) refused() {
	p.scene.Helper()
	r := p.begin(p.claim.TryAcquire)
	if r.end(); !errors.Is(r.err, second.ErrLocked) {
		p.scene.Errorf("TryAcquire of a lock that is taken: %v, want ErrLocked", r.err)
	}
}

// The method takes calls TryAcquire until it gets a free lock. A server that lags may learn late that the lock is free.
func (p *proc) takes() (h *hold) {
	p.scene.Helper()
	p.scene.await("a try takes a lock that is free", p.scene.news(), func() bool {
		r := p.begin(p.claim.TryAcquire)
		r.end()
		h = r.hold
		return h != nil
	})
	return h
}

func (s *scene) release(h *hold) {
	s.Helper()
	if err := h.Release(); err != nil {
		s.Errorf("Release: %v", err)
	}
}

// The method costs checks how many durable writes f makes.
func (s *scene) costs(what string, least, most int64, f func()) {
	s.Helper()
	s.needs(s.Writes != nil, "count writes")
	before := s.Writes()
	f()
	if n := s.Writes() - before; n < least || n > most {
		s.Errorf("%d writes for %s, want %d to %d", n, what, least, most)
	}
}

// The method used makes the first acquisition at the path. That creates everything that later acquisitions expect to find.
func (s *scene) used(p *proc) {
	s.Helper()
	s.release(p.acquire())
	s.none()
}

// The method await polls until a condition holds, at intervals that grow.
func (s *scene) await(what string, within time.Duration, holds func() bool) {
	s.Helper()
	if !s.poll(within, holds) {
		s.Fatalf("not within %v: %s", within, what)
	}
}

func (s *scene) poll(within time.Duration, holds func() bool) bool {
	deadline := time.Now().Add(within + s.slack())
	for pause := s.moment() / 20; !holds(); pause = min(2*pause, s.moment()) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// The method present returns the number of contenders. If the store does not answer yet, it asks again.
func (s *scene) present() (n int) {
	s.Helper()
	s.await("a look at the queue", s.patience(), func() bool { n = s.Left(s.path); return n >= 0 })
	return n
}

// awaitLeft waits until there are n contenders.
func (s *scene) awaitLeft(n int) {
	s.Helper()
	s.leftWithin(n, s.patience())
}

func (s *scene) leftWithin(n int, within time.Duration) {
	s.Helper()
	var got int
	if !s.poll(within, func() bool { got = s.Left(s.path); return got == n }) {
		s.Fatalf("%d contenders are left after %v, want %d", got, within, n)
	}
}

// scene.none checks that no contender is left. It waits until everything that is not renewed has expired.
func (s *scene) none() {
	s.Helper()
	s.leftWithin(0, s.expiry())
}

// The method expiry returns the time after which the store has given away the locks of a silent process.
func (s *scene) expiry() time.Duration { return 2 * s.lease() }

// scene.within checks that f takes no longer than d.
func (s *scene) within(d time.Duration, what string, f func()) {
	s.Helper()
	begun := time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d + s.patience()):
		s.Fatalf("%s hangs", what)
	}
	if took := time.Since(begun); took > d+s.slack() {
		s.Errorf("%s took %v, want at most %v", what, took, d)
	}
}

// The method cut cuts a process off, until heal is called or the test ends.
func (s *scene) cut(p *proc) (heal func()) { return s.until(p.Cut()) }

// The method freeze stops the store, until thaw is called or the test ends.
func (s *scene) freeze() (thaw func()) { return s.until(s.Freeze()) }

func (s *scene) until(end func()) func() {
	end = sync.OnceFunc(end)
	s.Cleanup(end)
	return end
}
