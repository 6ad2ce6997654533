package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/election"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// A leader is the hold of a call that leads an election.
type leader struct {
	*election.Election
	resign chan struct{}
	ended  chan error
}

func (l leader) Err() error { return l.IsLeader() }

func (l leader) Release() error {
	lost := l.Err()
	close(l.resign)
	return cmp.Or(<-l.ended, lost)
}

// A doing is the hold of a call that does its work in a function.
type doing struct {
	*tier.Hold
	work  context.Context
	done  chan struct{}
	ended chan error
}

func (d doing) Context(context.Context) context.Context { return d.work }

func (d doing) Release() error {
	close(d.done)
	return <-d.ended
}

// A caller is a goroutine of a process. It acquires a lock or permits, and releases them, once in each turn.
type caller struct {
	*process
	world  *queues
	name   string
	call   Call
	left   int // how many turns are left
	begun  bool
	state  state
	since  time.Time // when the newest call began
	after  int       // the step in which that call began
	cancel context.CancelFunc
	ended  bool    // the context of the call has ended
	alone  bool    // when the call began, the process may have been canceling its only request for the lock
	behind bool    // when the caller gave up, its process knew that another process had the lock
	first  bool    // when the caller gave up, its process knew that no other process blocked it
	spoilt bool    // the caller gave up at the moment when another caller released
	has    []*span // the spans that it has to release; the last one is released first
	err    error
	wrote  bool
	events []string                     // events of the turn
	keep   *bool                        // whether the release in the last step has to keep the lock in the process; nil: it may do either
	source tier.Source                  // source of the newest grant
	got    time.Time                    // when the newest grant came
	opens  atomic.Pointer[second.Grant] // the grant that it has asked the store to open to readers; nil if it has not
}

func (c *caller) begin() {
	w := c.world
	w.quiet = 0
	c.alone = c.gaveUp && !slices.ContainsFunc(c.callers, func(x *caller) bool {
		wants := x.state == holding || x.state == waiting && !x.ended && !x.alone
		return x != c && wants && x.call.mutex() == c.call.mutex()
	})
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), calledBy{}, c))
	c.process.begun, c.begun, c.ended, c.behind, c.first = true, true, false, false, false
	c.state, c.cancel, c.since, c.after, c.err = waiting, cancel, time.Now(), w.step, nil
	c.wrote, c.spoilt, c.events, c.keep = false, false, nil, nil
	if w.scope.seed.deaf {
		c.cancel = func() {}
	}
	go func() {
		has, err := c.below(ctx, frames)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			if c.err, c.gaveUp = err, true; w.scope.seed.terse {
				c.err = context.Cause(ctx)
			}
			w.judgeFailureLocked(c, len(has) > 0)
			c.turnIsOver()
			return
		}
		c.has, c.state = has, holding
		w.grantedLocked(c)
	}()
}

// frames is the number of additional stack frames of an acquisition. A logged stack trace has a limited number of lines. With these frames,
// the trace has exactly that many.
const frames = 4

// below calls acquire, with a number of additional stack frames in between.
func (c *caller) below(ctx context.Context, frames int) (has []*span, err error) {
	if frames > 0 {
		return c.below(ctx, frames-1)
	}
	return c.acquire(ctx)
}

// The method acquire executes the call of a caller.
func (c *caller) acquire(ctx context.Context) (has []*span, err error) {
	r := c.registry
	take := func(weight int) func(*tier.Hold, error) *tier.Hold {
		return func(h *tier.Hold, failed error) *tier.Hold {
			if err = failed; err != nil {
				return nil
			}
			has = append(has, &span{caller: c, paths: []string{c.call.mutex()}, weight: weight, token: h.Token(), hold: h})
			return h
		}
	}
	options := c.world.scope.ofMutex()
	permits := func(n int) {
		var p *tier.Permits
		there := c.world.scope.permits()
		if p, err = r.Semaphore(path, there, options...).Acquire(ctx, n); err == nil {
			has = append(has, &span{caller: c, paths: []string{permitsOf + path}, weight: n * whole / there, hold: p})
		}
	}
	mutex, rw := r.Mutex(c.call.mutex(), options...), r.RWMutex(path, options...)
	switch c.call {
	case Lock, Second, Third, Guarded:
		take(whole)(mutex.Acquire(ctx))
	case Yield:
		if h := take(whole)(mutex.Acquire(ctx)); h != nil {
			has[0].wanted = []<-chan struct{}{h.Contended(), h.RevokeRequested()}
		}
	case Try:
		take(whole)(mutex.TryAcquire(ctx))
	case Named:
		take(whole)(r.Mutex(tier.Name("/lock", "AZaz09@[`{/: größe𝒳"), options...).Acquire(ctx))
	case Apart:
		if h := take(whole)(mutex.Acquire(ctx)); h != nil {
			if again, failed := mutex.TryAcquire(tier.WithoutHold(h.Context(ctx))); failed == nil && h.Err() == nil {
				again.Release()
				err = errors.New("it enters again without its hold")
			}
		}
	case Do:
		d, does := doing{done: make(chan struct{}), ended: make(chan error, 1)}, make(chan context.Context, 1)
		go func() {
			d.ended <- mutex.Do(ctx, func(ctx context.Context) error {
				does <- ctx
				<-d.done
				return nil
			})
		}()
		select {
		case d.work = <-does:
			d.Hold = tier.HoldFrom(d.work, mutex)
			has = append(has, &span{caller: c, paths: []string{path}, weight: whole, token: d.Token(), hold: d})
		case err = <-d.ended:
		}
	case Wrong:
		err = c.askWrong(ctx)
	case Nested:
		if h := take(whole)(mutex.Acquire(ctx)); h != nil {
			take(whole)(mutex.Acquire(h.Context(context.Background())))
		}
	case Outer:
		if h := take(whole)(mutex.Acquire(ctx)); h != nil {
			take(whole)(mutex.TryAcquire(context.WithoutCancel(h.Context(ctx))))
			slices.Reverse(has)
		}
	case Upgrade:
		if h := take(1)(rw.Reader().Acquire(ctx)); h != nil {
			_, waited := rw.Writer().Acquire(h.Context(ctx))
			_, tried := rw.Writer().TryAcquire(h.Context(ctx))
			if h.Err() == nil && (!errors.Is(waited, tier.ErrCannotUpgrade) || !errors.Is(tried, tier.ErrCannotUpgrade)) {
				err = fmt.Errorf("it reads, and is not refused to write: %w, %w", waited, tried)
			}
		}
	case Lead:
		l, led := leader{election.New(r, path), make(chan struct{}), make(chan error, 1)}, make(chan int64, 1)
		go func() {
			l.ended <- l.Run(ctx, func(_ context.Context, term int64) error {
				led <- term
				<-l.resign
				return election.ErrStop
			})
		}()
		select {
		case term := <-led:
			has = append(has, &span{caller: c, paths: []string{path}, weight: whole, token: term, hold: l})
		case err = <-l.ended:
		}
	case Write:
		take(whole)(rw.Writer().Acquire(ctx))
	case Open:
		if h := take(1)(rw.Writer().Acquire(ctx)); h != nil {
			go c.open(waittest.Grant(h))
		}
	case Read:
		take(1)(rw.Reader().Acquire(ctx))
	case Downgrade:
		if h := take(whole)(rw.Writer().Acquire(ctx)); h != nil {
			take(1)(rw.Reader().Acquire(h.Context(context.Background())))
			slices.Reverse(has)
		}
	case One, Two, Three:
		permits(c.call.permits())
	case Both:
		locks := []*tier.Mutex{mutex, r.Mutex(other, options...)}
		if c.process != c.world.processes[0] { // all processes but the first take the two locks in reverse order
			slices.Reverse(locks)
		}
		locks = append(locks, locks[0]) // repeats a lock, because AcquireAll has to accept that
		var b *tier.Bundle
		if b, err = tier.AcquireAll(ctx, locks...); err == nil {
			has = append(has, &span{caller: c, paths: []string{path, other}, weight: whole, hold: b})
		}
	}
	if err != nil && len(has) > 0 { // the call has acquired the first lock and failed at the second one
		has[0].hold.Release()
	}
	return has, err
}

// The method open asks the store to let readers in, which package tier may not do in this situation.
func (c *caller) open(grant second.Grant) {
	c.opens.Store(&grant)
	defer c.opens.Store(nil)
	grant.(interface{ Share(context.Context) error }).Share(context.Background())
	if c.world.scope.seed.opens {
		time.Sleep(lease)
	}
}

// askWrong makes invalid calls of each kind. All of them have to be refused. It returns the reason of the last refusal, or an error that
// names the call that was not refused.
func (c *caller) askWrong(ctx context.Context) (why error) {
	for what, option := range map[string]tier.Option{
		"linger": tier.WithLinger(-1), "wait limit": tier.WithMaxWait(-1), "hand-off": tier.WithHandOff(-1),
	} {
		_, _, atOnce := second.Split[tier.Option, tier.Option](new(second.Settings), []tier.Option{option})
		m, s := c.registry.Mutex(path, option), c.registry.Semaphore(path, c.world.scope.permits(), option)
		_, acquired := m.Acquire(ctx)
		_, tried := m.TryAcquire(ctx)
		_, looked := m.Contenders(ctx)
		_, permitted := s.Acquire(ctx, 1)
		for _, err := range []error{acquired, tried, looked, m.Revoke(ctx), permitted, atOnce} {
			if err == nil || !strings.Contains(err.Error(), what) {
				return fmt.Errorf("it is refused as %w, and not for its %s", err, what)
			}
		}
		why = acquired
	}
	for _, permits := range []int{-1, 0, c.world.scope.permits() + 1} {
		if _, err := c.registry.Semaphore(path, c.world.scope.permits()).Acquire(ctx, permits); err == nil {
			return fmt.Errorf("it is not refused %d permits of %d", permits, c.world.scope.permits())
		}
	}
	if _, err := c.registry.Semaphore(path, 0).Acquire(ctx, 1); err == nil {
		return errors.New("it is not refused one permit of none")
	}
	if _, err := tier.AcquireAll(ctx, c.registry.Mutex(path), c.registry.RWMutex(path).Writer()); err == nil {
		return errors.New("it is not refused two locks at one path")
	}
	return errors.Join(errRefused, why)
}

var errRefused = errors.New("all of it is refused")

func (c *caller) release() {
	w := c.world
	w.quiet = 0
	// The mutex is held because a call that ends during this release is checked at the same time.
	w.mu.Lock()
	c.state = releasing
	last := c.has[len(c.has)-1]
	if c.has = c.has[:len(c.has)-1]; len(c.has) == 0 {
		c.told.held += time.Since(c.got)
	}
	c.keep = w.toBeKept(last)
	if last.end < 0 { // otherwise the hold was lost earlier
		last.end = w.step
	}
	w.mu.Unlock()
	go func() {
		begun := time.Now()
		err := last.hold.Release()
		took := time.Since(begun)
		c.writeLate(last)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.judgeReleasedLocked(last, took)
		if err != nil || took >= lease/3 {
			c.process.owes = time.Now().Add(lease)
		}
		if err != nil && !c.disturbed && !w.refused {
			w.blameLocked("lost", "%s releases a lost lock: %v", c.name, err)
		}
		w.judgeReleaseLocked(c, err)
		if c.state = holding; len(c.has) == 0 {
			c.turnIsOver()
		}
	}()
}

// judgeReleasedLocked checks a release. Afterwards, the hold and a second release have to report ErrReleased. For each lock, the release
// must have taken no longer than allowed, whatever the network did.
func (w *queues) judgeReleasedLocked(x *span, took time.Duration) {
	switch x.hold.(type) {
	case leader, doing: // these are released only once
		return
	}
	if again := x.hold.Release(); !errors.Is(again, tier.ErrReleased) || !errors.Is(x.hold.Err(), tier.ErrReleased) {
		w.blameLocked("lost", "%s has released, and says %v, and when it does so again %v", x.name, x.hold.Err(), again)
	}
	if took > time.Duration(len(x.paths))*lease/3 && !w.scope.Seam { // with Seam, nothing limits the wait of a release
		w.blameLocked("waits", "%s takes %v to release", x.name, took)
	}
}

// A writer is a grant that can guard writes.
type writer interface {
	Write(ctx context.Context, check func() error, send func() (queue.Outcome, error)) error
}

// writeLate tries a write after the release. The write must not be sent, and it must not delay the next holder.
func (c *caller) writeLate(x *span) {
	hold, ok := x.hold.(*tier.Hold)
	if c.call != Guarded || !ok || c.world.scope.ZooKeeper {
		return
	}
	waittest.Grant(hold).(writer).Write(context.Background(), hold.Err, func() (queue.Outcome, error) {
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		c.world.blameLocked("writes", "%s writes after its release", c.name)
		return queue.Done, nil
	})
}

// The method write sends a write that may take effect only under the lock. It does not wait for the outcome.
func (c *caller) write() {
	w, x := c.world, c.has[0]
	w.quiet, c.wrote = 0, true
	hold := x.hold.(*tier.Hold)
	if e, frames := w.store.(*ensemble); frames {
		go e.write(x, hold)
		return
	}
	go waittest.Grant(hold).(writer).Write(context.Background(), hold.Err, func() (queue.Outcome, error) {
		verdict := w.post(c.process, "write of "+x.name, both)
		w.mu.Lock()
		defer w.mu.Unlock()
		if verdict == lose { // the answer is lost, and the write may still take effect later
			w.writes = append(w.writes, x)
			return queue.Unknown, errors.New("no answer")
		}
		if w.guardsLocked(x) { // the store accepts the write only in this case
			w.judgeWriteLocked(x)
		}
		return queue.Done, nil
	})
}

func (c *caller) turnIsOver() {
	c.state = idle
	if c.left--; c.left == 0 {
		c.state = over
	}
}

func (c *caller) giveUp() {
	w := c.world
	w.mu.Lock()
	c.ended, c.gaveUp = true, true
	c.behind, c.first = w.standsLocked(c)
	w.mu.Unlock()
	c.cancel()
}
