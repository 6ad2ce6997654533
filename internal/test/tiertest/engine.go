package tiertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// These are promises of package tier. They follow from the promises of the second tier, for example that a requeue is one write, and that a
// holder learns of waiters and of its loss. Therefore they are tested in virtual time on each kind of tier, and in real time on one store
// only.
var enginePromises = []promise{
	{name: "hand-off", text: "Handing the lock off to another goroutine of the process writes nothing",
		gate: true, alone: true, test: handOffIsFree},
	{name: "strict", text: "Without local hand-offs, each acquisition takes one write", gate: true, alone: true, test: strictTurnIsOneWrite},
	{name: "linger", text: "Acquiring a lock that the process keeps idle writes nothing; the lock is released when another process wants it",
		gate: true, alone: true,
		test: lingering},
	{name: "re-entry", text: "Acquiring a lock again with the context of its hold writes nothing, and the lock is released with the last hold",
		gate: true, alone: true, test: reentry},
	{name: "budget", text: "While other processes wait, a process keeps the lock no longer than its hand-off budget plus two critical " +
		"sections",
		gate: true, test: budgetIsKept},
	{name: "hold-lost", text: "A hold reports its loss before its lease ends, and before another process gets the lock",
		gate: true, test: holdIsLost},
}

// An engine is the gate of one process over its second tier.
type engine struct {
	*proc
	mu *tier.Mutex
}

func (s *scene) engine(opts ...tier.Option) *engine {
	s.Helper()
	return s.engineOf(s.process(), opts...)
}

func (s *scene) engineOf(p *proc, opts ...tier.Option) *engine {
	s.Helper()
	locks := tier.New(p.Tier, opts...)
	s.Cleanup(func() { locks.Close() })
	return &engine{p, locks.Mutex(s.path)}
}

// A workshop is the critical section that all processes share. It counts how often goroutines enter it, and how often another process is
// next.
type workshop struct {
	scene  *scene
	inside atomic.Int32
	turns  atomic.Int64

	owner   atomic.Pointer[engine] // the process whose goroutine was inside last
	tenures atomic.Int64           // how often the owner has changed
}

// The method turn does some work under the lock in a process.
func (w *workshop) turn(ctx context.Context, e *engine, work time.Duration) error {
	hold, err := e.mu.Acquire(ctx)
	if err != nil {
		return err
	}
	if w.inside.Add(1) != 1 {
		w.scene.Errorf("two are in the section")
	}
	if w.owner.Swap(e) != e {
		w.tenures.Add(1)
	}
	time.Sleep(work)
	w.turns.Add(1)
	w.inside.Add(-1)
	return hold.Release()
}

// The method crowd starts a number of goroutines in each process. Each goroutine does a number of turns.
func (w *workshop) crowd(engines []*engine, goroutines, turns int) {
	ctx, cancel := context.WithTimeout(w.scene.Context(), 2*w.scene.patience())
	defer cancel()
	var all sync.WaitGroup
	for _, e := range engines {
		for range goroutines {
			all.Go(func() {
				for range turns {
					// With this length, the previous holder has time to queue again.
					if err := w.turn(ctx, e, w.scene.moment()/60); err != nil {
						w.scene.Errorf("a turn: %v", err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

func handOffIsFree(s *scene) {
	e := s.engine(tier.WithHandOff(time.Hour))
	w := &workshop{scene: s}
	s.used(e.proc)
	held, err := e.mu.Acquire(s.Context()) // holds the lock at first, so that all goroutines of the crowd wait
	if err != nil {
		s.Fatalf("Acquire: %v", err)
	}
	s.costs("200 turns in one process", 0, 200/10, func() { // on a busy machine, some releases find no waiter
		time.AfterFunc(2*s.moment(), func() { held.Release() })
		w.crowd([]*engine{e}, 20, 10)
		s.none()
	})
}

func strictTurnIsOneWrite(s *scene) {
	w := &workshop{scene: s}
	var engines []*engine
	for range 4 {
		engines = append(engines, s.engine(tier.WithStrictOrder()))
	}
	s.used(engines[0].proc)
	s.costs("200 turns in strict order", 0, 200*11/10, func() {
		w.crowd(engines, 5, 10)
		s.none()
	})
}

func lingering(s *scene) {
	e, other := s.engine(tier.WithLinger(time.Hour)), s.engine()
	w := &workshop{scene: s}
	turn := func(e *engine) {
		ctx, cancel := context.WithTimeout(s.Context(), s.patience())
		defer cancel()
		if err := w.turn(ctx, e, 0); err != nil {
			s.Fatalf("a turn: %v", err)
		}
	}
	turn(e)
	s.costs("10 turns of a lock that lingers", 0, 0, func() {
		for range 10 {
			turn(e)
		}
	})
	if n := s.present(); n != 1 {
		s.Errorf("%d contenders of a lock that lingers", n)
	}
	s.within(s.news(), "a turn of another process", func() { turn(other) })
	s.none()
}

func reentry(s *scene) {
	e := s.engine()
	other := s.process()
	outer, err := e.mu.Acquire(s.Context())
	if err != nil {
		s.Fatalf("Acquire: %v", err)
	}
	var inner *tier.Hold
	s.costs("a re-entry", 0, 0, func() {
		if inner, err = e.mu.Acquire(outer.Context(s.Context())); err != nil {
			s.Fatalf("Acquire with the context of a hold: %v", err)
		}
		if inner.Token() != outer.Token() {
			s.Errorf("token %d of an inner hold, want %d", inner.Token(), outer.Token())
		}
		if err := outer.Release(); err != nil {
			s.Errorf("Release: %v", err)
		}
	})
	r := other.queue()
	if r.ended() {
		s.Errorf("the lock went before the last hold")
	}
	if err := inner.Release(); err != nil {
		s.Errorf("Release: %v", err)
	}
	s.release(r.granted())
	s.none()
}

// budgetIsKept checks how many holds of other processes a waiting process has to wait for. In virtual time, it also checks how soon the
// process gets the lock.
func budgetIsKept(s *scene) {
	const ahead = 2
	budget, section := s.moment(), s.moment()/30
	w := &workshop{scene: s}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	var all sync.WaitGroup
	for range ahead {
		e := s.engine(tier.WithHandOff(budget))
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := w.turn(ctx, e, section); err != nil && ctx.Err() == nil {
						s.Errorf("a turn: %v", err)
						return
					}
				}
			})
		}
	}
	p := s.process()
	s.await("a turn", s.patience(), func() bool { return w.turns.Load() > 0 })
	for waits := 0; waits < 5; {
		begun, stands := time.Now(), new(second.Wait)
		r := p.begin(func(ctx context.Context) (second.Grant, error) { return p.claim.Claim.Acquire(ctx, stands) })
		queued := false
		s.await("a turn behind busy processes", s.patience(), func() bool {
			queued = stands.Standing().Ahead > 0
			return queued || r.ended()
		})
		before := w.tenures.Load()
		h := r.granted()
		if n := w.tenures.Load() - before; queued && n > ahead {
			s.Errorf("%d times another process had the lock before a process that waited behind %d", n, ahead)
		}
		if took := time.Since(begun); s.Virtual && took > ahead*(budget+2*section) {
			s.Errorf("a turn behind %d busy processes took %v, want at most %v", ahead, took, ahead*(budget+2*section))
		}
		s.release(h)
		if queued {
			waits++
		}
	}
	cancel()
	all.Wait()
	s.none()
}

func holdIsLost(s *scene) {
	e, other := s.engineOf(s.victim()), s.process()
	s.needs(e.Cut != nil, "cut a process off")
	hold, err := e.mu.Acquire(s.Context())
	if err != nil {
		s.Fatalf("Acquire: %v", err)
	}
	work := hold.Context(s.Context())
	local := make(chan error, 1)
	w := &workshop{scene: s}
	go func() { local <- w.turn(s.Context(), e, 0) }()
	r := other.queue()
	struck := time.Now()
	heal := s.cut(e.proc)
	select {
	case <-hold.Lost():
	case <-r.done: // another process got the lock, so the check below has to find a loss
	case <-time.After(time.Until(struck.Add(s.Lease))): // the loss was due earlier, but may be late on a busy machine
	}
	if err := hold.Err(); !errors.Is(err, tier.ErrLost) {
		s.Errorf("Err of a hold after a lease of %v, or when another process holds: %v", s.Lease, err)
	}
	select {
	case <-hold.Lost():
	case <-time.After(s.slack()):
		s.Errorf("the hold is not lost after a lease of %v", s.Lease)
	}
	select {
	case <-work.Done():
	case <-time.After(s.slack()):
	}
	if cause := context.Cause(work); !errors.Is(cause, tier.ErrLost) {
		s.Errorf("the work under a lost hold ended with %v", cause)
	}
	s.within(e.lease/3, "Release of a lost hold", func() {
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			s.Errorf("Release of a lost hold: %v, want ErrLost", err)
		}
	})
	next := r.granted()
	heal()
	s.release(next)
	if err := <-local; err != nil {
		s.Errorf("who waited in the process that was cut off: %v", err)
	}
	s.none()
}
