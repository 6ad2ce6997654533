package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// A seam is a scripted store that does what package second requires, and nothing else. Each request is executed and answered in one step.
// Each notification is also a step: the lock is granted, another process waits, or another process asks for the lock.
type seam struct {
	world *queues

	mu       sync.Mutex // guards the fields below, and the places
	revision int64
	places   map[string][]*place // by path, in order
	names    map[string]int
}

// A place is an entry in a queue. It is also the grant, or the set of permits, that the entry becomes.
type place struct {
	second.Contender // its field Permits is the number of permits that the place has
	side             *side
	path             string
	reads            bool
	has              bool           // the store has given it the lock
	told             chan struct{}  // closed when the process learns that it has the lock
	changed          mutexbool.Bool // set when the process learns of another number of free permits
	life             context.Context
	end              context.CancelCauseFunc
	givenUp          atomic.Bool
	gone             chan struct{} // closed when the place is no longer in the queue, after a release or a wait that was given up
	contended        atomic.Pointer[second.Contention]
	wanted           time.Time // when another contender began to wait, as far as the process knows; zero if it knows of none
	looks            bool      // the process has asked for a notification when another process waits
	sharing          bool      // the writer becomes a reader as soon as the next contender is a reader
	local            time.Time // when a goroutine of this process was last seen to wait
	shared           chan struct{}
	// These numbers are valid if the place is first: free counts the free permits in the newest notification, known those in the newest one
	// that has arrived.
	free, known int
	revoked     chan struct{}
	writes      atomic.Int32 // how many guarded writes are under way
}

func newSeam(w *queues) *seam {
	return &seam{world: w, places: make(map[string][]*place), names: make(map[string]int)}
}

// Queue returns the contenders at a path.
func (s *seam) Queue(path string) (all []second.Contender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.places[path] {
		all = append(all, x.Contender)
	}
	return all
}

// Expire ends the session of the process at a place. All holds of that process are lost.
func (s *seam) Expire(path string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(s.places[path][i].side.process, second.Lost(second.BySession, "it is over"))
}

// Remove deletes the contender at a place in the queue.
func (s *seam) Remove(path string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.places[path][i]
	x.end(second.Lost(second.ByDeletion, "somebody has removed it"))
	s.places[path] = slices.Delete(s.places[path], i, i+1)
	s.settleLocked(path)
}

func (s *seam) open()                      {} // nothing to do: each call is a step from the beginning
func (s *seam) cut(*process) (heal func()) { panic("a seam that is cut is one whose session ends") }
func (s *seam) close()                     {}

func (s *seam) loseLocked(p *process, loss error) {
	for path, places := range s.places {
		s.places[path] = slices.DeleteFunc(places, func(x *place) bool {
			if x.side.process == p {
				x.end(loss)
			}
			return x.side.process == p
		})
		s.settleLocked(path)
	}
}

// side.do executes a request of a process in a step. The request is executed even if its caller no longer waits for it.
func (t *side) do(what string, execute func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		t.world.post(t.process, what, both)
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.ctx.Err() == nil {
			execute()
		}
		close(done)
	}()
	return done
}

// The method tell sends a notification to the process of a place. Its arrival is a step, and calls learn.
func (s *seam) tell(x *place, what string, learn func()) {
	go func() {
		s.world.post(x.side.process, "news of "+x.ID+": "+what, toProcess)
		s.mu.Lock()
		defer s.mu.Unlock()
		if x.life.Err() == nil {
			learn()
		}
	}()
}

// settleLocked finds the contenders at a path that now have the lock, and informs all processes that are affected.
func (s *seam) settleLocked(path string) {
	for i, x := range s.places[path] {
		if x.Of == 0 && !x.has && s.firstLocked(x) {
			x.has = true
			s.tell(x, "it has the lock", func() { close(x.told) })
		}
		if x.looks && s.behindLocked(path, i) {
			x.looks = false
			signal := x.contended.Load()
			s.tell(x, "somebody waits", func() { s.raiseLocked(x, signal, time.Now()) })
		}
		if free := s.freeLocked(x); x.Of > 0 && s.firstLocked(x) && x.free != free {
			x.free = free
			s.tell(x, fmt.Sprint(free, " are free"), func() {
				x.known = free
				x.changed.Set()
			})
		}
		if behind := s.places[path][i+1:]; x.sharing && len(behind) > 0 && behind[0].Contender.Shared {
			x.sharing, x.Contender.Shared = false, true
			s.tell(x, "it is shared", func() {
				x.contended.Store(second.NewContention(x.look))
				close(x.shared)
			})
		}
	}
}

func (s *seam) raiseLocked(x *place, signal *second.Contention, since time.Time) {
	if x.wanted = since; !signal.Raised() {
		signal.Raise(since.Add(s.world.scope.seed.late))
	}
}

// firstLocked reports whether no contender ahead blocks this one.
func (s *seam) firstLocked(x *place) bool {
	for _, y := range s.places[x.path] {
		if y == x {
			return x.Permits == 0
		}
		if x.waitsFor(y) {
			break
		}
	}
	return false
}

// freeLocked returns how many permits are free at the path of x.
func (s *seam) freeLocked(x *place) int {
	free := x.Of
	for _, y := range s.places[x.path] {
		free -= y.Permits
	}
	return free
}

// behindLocked reports whether a later contender waits for the one at place i.
func (s *seam) behindLocked(path string, i int) bool {
	x := s.places[path][i]
	return slices.ContainsFunc(s.places[path][i+1:], func(y *place) bool { return y.waitsFor(x) })
}

func (x *place) waitsFor(ahead *place) bool {
	return ahead.Permits == 0 && !(x.Contender.Shared && ahead.Contender.Shared)
}

func (s *seam) leaveLocked(x *place) {
	s.places[x.path] = slices.DeleteFunc(s.places[x.path], func(y *place) bool { return x == y })
	close(x.gone)
	s.settleLocked(x.path)
}

// A side is one process's view of the seam.
type side struct {
	*seam
	process *process
	origin  time.Time
	ctx     context.Context
	close   context.CancelFunc
}

func (s *seam) dial(p *process) second.Tier {
	ctx, cancel := context.WithCancel(context.Background())
	return &side{s, p, time.Now().Add(-time.Hour), ctx, cancel} // the start lies in the past, so that a sum which leaves it out shows
}

func (t *side) Claim(path string, o second.Options) (second.Claim, error) {
	return &claim{side: t, path: path, mode: o.Mode, linger: o.MayLinger}, nil
}

func (t *side) Semaphore(path string, permits int, _ second.Options) (second.Semaphore, error) {
	return &semaphore{claim{side: t, path: permitsOf + path, of: permits}}, nil
}

func (t *side) Err() error {
	if t.ctx.Err() != nil {
		return second.ErrClosed
	}
	return nil
}

func (t *side) Context() context.Context              { return t.ctx }
func (t *side) GracePeriod() *second.GracePeriodError { return nil }
func (t *side) Refusal() error                        { return nil }
func (t *side) Groups() (_, _ int64)                  { return 0, 0 }
func (t *side) Now() time.Duration                    { return time.Since(t.origin) }
func (t *side) Logger() *slog.Logger                  { return slog.New(log{slog.DiscardHandler, t.world}) }
func (t *side) Notify(f func(second.Connection))      { f(second.Connection{State: second.Connected}) }

// Close removes all contenders of the process from the queues.
func (t *side) Close() error {
	t.close()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loseLocked(t.process, second.Lost(second.ByClose, "%w", second.ErrClosed))
	return nil
}

// A claim is one process's view of a lock.
type claim struct {
	*side
	path   string
	mode   second.Mode
	linger time.Duration
	of     int // number of permits of the semaphore; 0 for a lock
}

func (c *claim) Equal(other second.Claim) bool { return *c == *other.(*claim) }

// The method place returns a new place that is in no queue yet.
func (c *claim) place() *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[c.process.name+c.path]++
	x := &place{side: c.side, path: c.path, reads: c.mode == second.Reading}
	x.told, x.gone, x.revoked, x.shared = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	x.Contender = second.Contender{
		ID: fmt.Sprintf("%s%s.%d", c.process.name, c.path, c.names[c.process.name+c.path]), Label: c.process.name,
		Linger: c.linger, Shared: x.reads, Of: c.of,
	}
	x.life, x.end = context.WithCancelCause(context.Background())
	x.contended.Store(second.NewContention(x.look))
	return x
}

// enterLocked puts a place at the end of the queue. If the place gets the lock, its process learns of that at once.
func (c *claim) enterLocked(x *place) {
	c.revision++
	x.Contender.Token = c.revision
	c.places[c.path] = append(c.places[c.path], x)
	if first := c.firstLocked(x); first && x.Of > 0 {
		x.free = c.freeLocked(x) // the process learns of these permits at once
	} else if first {
		x.has = true
		close(x.told)
	}
	c.settleLocked(c.path)
}

func (c *claim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	for {
		x := c.place()
		entered := c.do("enter "+x.ID, func() { c.enterLocked(x) })
		if err := x.await(ctx, w, entered); !errors.Is(err, second.ErrLost) {
			return x.orNone(err), err
		}
	}
}

// await waits until a place is granted the lock. The request to enter the queue may still be under way.
func (x *place) await(ctx context.Context, w *second.Wait, entered chan struct{}) error {
	defer w.Forget()
	for entering := entered; ; entering = nil {
		select {
		case <-entering:
			select {
			case <-x.told:
			default:
				w.Stands(x.standing)
			}
		case <-x.told:
			return nil
		case <-x.life.Done():
			return context.Cause(x.life)
		case <-x.side.ctx.Done():
			return second.ErrClosed
		case <-ctx.Done():
			x.abandon(entered)
			return context.Cause(ctx)
		}
	}
}

func (x *place) standing() (s second.Standing) {
	x.side.mu.Lock()
	defer x.side.mu.Unlock()
	for _, y := range x.side.places[x.path] {
		if y == x {
			break
		}
		if x.waitsFor(y) {
			s.Ahead, s.Nearest = s.Ahead+1, y.Contender
		}
	}
	return s
}

// abandon removes a place from the queue, even if the request to enter it is still under way.
func (x *place) abandon(entered chan struct{}) {
	x.givenUp.Store(true)
	go func() {
		<-entered
		if x.life.Err() == nil {
			x.leave()
		}
	}()
}

func (x *place) leave() { x.side.do("leave "+x.ID, func() { x.side.leaveLocked(x) }) }

func (x *place) orNone(err error) second.Grant {
	if err != nil {
		return nil
	}
	return x
}

func (c *claim) TryAcquire(ctx context.Context) (second.Grant, error) {
	x := c.place()
	err := c.try(ctx, x, func() bool {
		free := !slices.ContainsFunc(c.places[c.path], x.waitsFor)
		if free {
			c.enterLocked(x)
		}
		return free
	})
	if err != nil {
		return nil, fmt.Errorf("seam: try %s: %w", c.path, err)
	}
	return x, nil
}

func (c *claim) try(ctx context.Context, x *place, take func() bool) error {
	taken := false
	tried := c.do("try "+x.ID, func() { taken = take() })
	select {
	case <-tried:
		if !taken {
			return second.ErrLocked
		}
		return nil
	case <-c.side.ctx.Done():
		return second.ErrClosed
	case <-ctx.Done():
	}
	go func() {
		if <-tried; taken {
			x.abandon(tried)
		}
	}()
	return context.Cause(ctx)
}

func (c *claim) Requeue(ctx context.Context, grant second.Grant, w *second.Wait) (second.Grant, error) {
	old := grant.(*place)
	if old.givenUp.Swap(true) {
		return nil, second.ErrReleased
	}
	if old.life.Err() != nil {
		return c.Acquire(ctx, w)
	}
	x := c.place()
	entered := c.do("requeue "+old.ID+" as "+x.ID, func() {
		c.leaveLocked(old)
		c.enterLocked(x)
	})
	err := x.await(ctx, w, entered)
	if errors.Is(err, second.ErrLost) {
		return c.Acquire(ctx, w)
	}
	if err != nil {
		old.AwaitRelease()
	}
	return x.orNone(err), err
}

func (c *claim) Contenders(context.Context) ([]second.Contender, error) { return c.Queue(c.path), nil }

func (c *claim) Revoke(ctx context.Context) error {
	<-c.do("ask for "+c.path, func() {
		for _, x := range c.places[c.path] {
			if x.has && !x.Asked {
				x.Asked = true
				c.tell(x, "it is asked for", func() { close(x.revoked) })
			}
		}
	})
	return nil
}

func (c *claim) Load(context.Context) (second.Value, error) { return second.Value{}, second.ErrNoValue }

func (c *claim) Break(context.Context, int64) error { return errors.ErrUnsupported } // no scene breaks a lock

// Save is not supported, because no scene calls it.
func (x *place) Save(context.Context, func() error, []byte) error { return errors.ErrUnsupported }

func (x *place) Context() context.Context         { return x.life }
func (x *place) Err() error                       { return x.ErrAt(0) }
func (x *place) Token() int64                     { return x.Contender.Token }
func (x *place) Contended() *second.Contention    { return x.contended.Load() }
func (x *place) RevokeRequested() <-chan struct{} { return x.revoked }
func (x *place) Idle() bool                       { return x.writes.Load() == 0 || x.side.world.scope.seed.hasty }
func (x *place) Unsettle()                        { x.writes.Add(1) }
func (x *place) Leased() bool                     { return true }
func (x *place) Confirm() bool                    { return x.Err() == nil }
func (x *place) ValidUntil() time.Time            { return time.Now().Add(lease) }
func (x *place) ErrAt(time.Duration) error {
	if x.givenUp.Load() {
		return second.ErrReleased
	}
	return context.Cause(x.life)
}

func (x *place) Shared() bool {
	select {
	case <-x.shared:
		return true
	default:
		return x.reads
	}
}

// look asks for a signal when a contender waits behind the place. The process knows of no such contender yet.
func (x *place) look() {
	if x.side.world.scope.seed.blind {
		return
	}
	sent, signal := time.Now(), x.contended.Load()
	x.side.do("look behind "+x.ID, func() {
		if i := slices.Index(x.side.places[x.path], x); i >= 0 && x.side.behindLocked(x.path, i) {
			x.side.raiseLocked(x, signal, sent)
		} else {
			x.looks = true
		}
	})
}

func (x *place) Release() error {
	if x.givenUp.Swap(true) {
		return second.ErrReleased
	}
	if x.life.Err() == nil {
		x.leave()
	}
	return x.AwaitRelease()
}

func (x *place) AwaitRelease() error {
	select {
	case <-x.gone:
		return nil
	case <-x.life.Done():
		return context.Cause(x.life)
	}
}

func (x *place) Share(ctx context.Context) error {
	x.side.do("share "+x.ID, func() {
		x.sharing = true
		x.side.settleLocked(x.path)
	})
	select {
	case <-x.shared:
	case <-x.life.Done():
	case <-ctx.Done():
	}
	return cmp.Or(x.Err(), context.Cause(ctx))
}

// Write sends a write that may take effect only while the lock is held.
func (x *place) Write(_ context.Context, check func() error, send func() (queue.Outcome, error)) error {
	x.writes.Add(1)
	defer x.writes.Add(-1)
	if err := check(); err != nil {
		return err
	}
	_, err := send()
	return err
}

// A semaphore is one process's view of a set of permits.
type semaphore struct{ claim }

func (s *semaphore) Equal(other second.Semaphore) bool { return s.claim == other.(*semaphore).claim }
func (s *semaphore) Most() int                         { return s.of }
func (s *semaphore) Permits() int                      { return s.of }

// SetPermits is not supported here. Package internal/test/tiertest tests it.
func (s *semaphore) SetPermits(context.Context, int) error { return errors.ErrUnsupported }

func (s *semaphore) Acquire(ctx context.Context, d *second.Demand) ([]second.Permit, error) {
	for {
		x := s.place()
		entered := s.do("enter "+x.ID, func() {
			s.enterLocked(x)
			s.takeLocked(x, d)
		})
		err := s.bid(ctx, x, d, entered)
		if err == nil {
			return x.permits(), nil
		} else if !errors.Is(err, second.ErrLost) {
			return nil, err
		}
	}
}

// If the process is first in the queue, takeLocked takes as many of the free permits as it wants.
func (s *semaphore) takeLocked(x *place, d *second.Demand) {
	if !s.firstLocked(x) {
		return
	}
	x.free = s.freeLocked(x)
	x.known = x.free
	d.Contest(len(slices.DeleteFunc(slices.Clone(s.places[s.path]), func(y *place) bool { return y == x || y.Permits > 0 })))
	if k := d.Take(x.known); k > 0 {
		x.Permits = k
		close(x.told)
		s.settleLocked(s.path)
	}
}

// bid waits until permits are free that the process wants, and takes them.
func (s *semaphore) bid(ctx context.Context, x *place, d *second.Demand, entered chan struct{}) error {
	defer d.Forget()
	for asked := entered; ; {
		var free, wanted <-chan struct{}
		if asked == nil {
			free, wanted = x.changed.C(), d.Changed.C()
		}
		select {
		case <-x.told:
			return nil
		default:
		}
		select {
		case <-asked:
			asked = nil
			if s := x.standing(); s.Ahead > 0 {
				d.Stands(x.standing)
			}
			continue
		case <-x.life.Done():
			return context.Cause(x.life)
		case <-s.side.ctx.Done():
			return second.ErrClosed
		case <-ctx.Done():
			x.abandon(entered)
			return context.Cause(ctx)
		case <-free:
		case <-wanted:
			s.mu.Lock()
			known := x.known
			s.mu.Unlock()
			if d.Changed.Clear(); d.Take(known) == 0 {
				continue
			}
		}
		x.changed.Clear()
		d.Changed.Clear()
		asked = s.do("take "+x.ID, func() { s.takeLocked(x, d) })
	}
}

func (s *semaphore) TryAcquire(ctx context.Context, k int) ([]second.Permit, error) {
	x := s.place()
	if err := s.try(ctx, x, func() bool {
		free := !slices.ContainsFunc(s.places[s.path], x.waitsFor) && s.freeLocked(x) >= k
		if free {
			x.Permits = k
			s.enterLocked(x)
		}
		return free
	}); err != nil {
		return nil, err
	}
	return x.permits(), nil
}

// Release returns all permits in one step.
func (s *semaphore) Release(permits []second.Permit) (loss error) {
	var what []string
	for _, p := range permits {
		what = append(what, p.(*place).ID)
	}
	<-s.do(fmt.Sprint("give ", what), func() {
		for _, p := range permits {
			if x := p.(*place); x.life.Err() == nil {
				if x.Permits--; x.Permits == 0 {
					s.leaveLocked(x)
				}
			}
		}
		s.settleLocked(s.path)
	})
	for _, p := range permits {
		loss = cmp.Or(loss, context.Cause(p.Context()))
	}
	return loss
}

func (x *place) permits() []second.Permit { return slices.Repeat([]second.Permit{x}, x.Permits) }
