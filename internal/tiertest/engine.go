package tiertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// What package tier promises on top of a second tier.
var enginePromises = []promise{
	{name: "hand-off", text: "A hand-off within a process costs no write", alone: true, test: handOffIsFree},
	{name: "strict", text: "A turn in strict order costs one write", alone: true, test: strictTurnIsOneWrite},
	{name: "linger", text: "A lock that lingers costs no write, and goes when another process comes", alone: true, test: lingering},
	{name: "re-entry", text: "Re-entry costs no write, and the lock goes with the last hold", alone: true, test: reentry},
	{name: "budget", text: "While others wait, a process keeps the lock no longer than its hand-off budget and two sections", test: budgetIsKept},
	{name: "hold-lost", text: "A hold knows of its loss before its lease is over and before another process holds", test: holdIsLost},
}

// An engine is the gate of one process, over its tier.
type engine struct {
	*proc
	mu *tier.Mutex
}

func (s *scene) engine(opts ...tier.Option) *engine {
	s.Helper()
	p := s.process()
	locks, err := tier.New(p.Tier, opts...)
	if err != nil {
		s.Fatalf("tier.New: %v", err)
	}
	s.Cleanup(func() { locks.Close() })
	return &engine{p, locks.Mutex(s.path)}
}

// A workshop is the section behind the lock, of all processes.
type workshop struct {
	scene  *scene
	inside atomic.Int32
	turns  atomic.Int64
}

// turn has a goroutine of a process do some work under the lock.
func (w *workshop) turn(ctx context.Context, e *engine, work time.Duration) error {
	hold, err := e.mu.Acquire(ctx)
	if err != nil {
		return err
	}
	if w.inside.Add(1) != 1 {
		w.scene.Errorf("two are in the section")
	}
	time.Sleep(work)
	w.turns.Add(1)
	w.inside.Add(-1)
	return hold.Release()
}

// crowd has so many goroutines of each process take so many turns each.
func (w *workshop) crowd(engines []*engine, goroutines, turns int) {
	ctx, cancel := context.WithTimeout(w.scene.Context(), 2*w.scene.patience())
	defer cancel()
	var all sync.WaitGroup
	for _, e := range engines {
		for range goroutines {
			all.Go(func() {
				for range turns {
					// Long enough for the one before to queue again.
					if err := w.turn(ctx, e, w.scene.Lease/3000); err != nil {
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
	s.needs(s.Writes != nil, "count writes")
	e := s.engine(tier.WithHandOff(time.Hour))
	w := &workshop{scene: s}
	s.used(e.proc)
	held, err := e.mu.Acquire(s.Context()) // so that all of the crowd wait
	if err != nil {
		s.Fatalf("Acquire: %v", err)
	}
	before := s.Writes()
	time.AfterFunc(s.Lease/20, func() { held.Release() })
	w.crowd([]*engine{e}, 20, 10)
	s.none()
	if n, turns := s.Writes()-before, w.turns.Load(); n > turns/10 { // on a busy machine, some find nobody who waits
		s.Errorf("%d writes for %d turns in one process", n, turns)
	}
}

func strictTurnIsOneWrite(s *scene) {
	s.needs(s.Writes != nil, "count writes")
	w := &workshop{scene: s}
	var engines []*engine
	for range 4 {
		engines = append(engines, s.engine(tier.WithHandOff(0)))
	}
	s.used(engines[0].proc)
	before := s.Writes()
	w.crowd(engines, 5, 10)
	s.none()
	if n, turns := s.Writes()-before, w.turns.Load(); float64(n) > 1.1*float64(turns) {
		s.Errorf("%d writes for %d turns in strict order, want 1.1 each at most", n, turns)
	}
}

func lingering(s *scene) {
	s.needs(s.Writes != nil, "count writes")
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
	before := s.Writes()
	for range 10 {
		turn(e)
	}
	if n := s.Writes() - before; n != 0 {
		s.Errorf("%d writes for 10 turns of a lock that lingers", n)
	}
	if n := s.Left(s.path); n != 1 {
		s.Errorf("%d contenders of a lock that lingers", n)
	}
	s.within(s.news(), "a turn of another process", func() { turn(other) })
	s.none()
}

func reentry(s *scene) {
	s.needs(s.Writes != nil, "count writes")
	e := s.engine()
	other := s.process()
	outer, err := e.mu.Acquire(s.Context())
	if err != nil {
		s.Fatalf("Acquire: %v", err)
	}
	before := s.Writes()
	inner, err := e.mu.Acquire(outer.Context(s.Context()))
	if err != nil {
		s.Fatalf("Acquire with the context of a hold: %v", err)
	}
	if inner.Token() != outer.Token() {
		s.Errorf("token %d of an inner hold, want %d", inner.Token(), outer.Token())
	}
	if err := outer.Release(); err != nil {
		s.Errorf("Release: %v", err)
	}
	if n := s.Writes() - before; n != 0 {
		s.Errorf("%d writes for a re-entry", n)
	}
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

func budgetIsKept(s *scene) {
	const ahead = 2
	budget, section := s.Lease/60, s.Lease/1500
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
	e := s.engine(tier.WithHandOff(budget))
	for range 5 {
		s.within(ahead*(budget+2*section), "a turn behind two busy processes", func() {
			ctx, cancel := context.WithTimeout(ctx, s.Lease)
			defer cancel()
			if err := w.turn(ctx, e, 0); err != nil {
				s.Errorf("a turn: %v", err)
			}
		})
	}
	cancel()
	all.Wait()
	s.none()
}

func holdIsLost(s *scene) {
	e, other := s.engine(), s.process()
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
	case <-r.done:
		s.Errorf("another process holds before the hold is lost")
	case <-time.After(time.Until(struck.Add(s.Lease))):
		s.Errorf("the hold is not lost after a lease of %v", s.Lease)
	}
	if err := hold.Err(); !errors.Is(err, tier.ErrLost) {
		s.Errorf("Err of a lost hold: %v", err)
	}
	select {
	case <-work.Done():
	case <-time.After(s.slack()):
	}
	if cause := context.Cause(work); !errors.Is(cause, tier.ErrLost) {
		s.Errorf("the work under a lost hold ended with %v", cause)
	}
	s.within(s.Lease/3, "Release of a lost hold", func() {
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
