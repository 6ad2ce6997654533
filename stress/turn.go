package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// contend is the life of one goroutine: turn after turn, each on a path at random.
func (w *worker) contend(ctx context.Context, goroutine int) {
	random := rand.New(rand.NewPCG(w.task.Seed, uint64(w.task.Process)<<32|uint64(goroutine)))
	contenders := make([]contender, len(w.task.LockPaths))
	for i, path := range w.task.LockPaths {
		c, err := w.locker.contender(path)
		if err != nil {
			w.fail(err)
			return
		}
		contenders[i] = c
	}
	for ctx.Err() == nil {
		path := random.IntN(len(contenders))
		if err := w.takeTurn(ctx, random, contenders[path], path); err != nil {
			w.fail(err)
			sleep(ctx, nil, retryPause)
		}
		if w.task.Think > 0 {
			sleep(ctx, nil, time.Duration(random.Int64N(2*int64(w.task.Think))))
		}
	}
}

func (w *worker) takeTurn(ctx context.Context, random *rand.Rand, acquire contender, path int) error {
	if w.witness != nil {
		return w.witness.turn(ctx, random, acquire, path)
	}
	return w.turn(ctx, acquire, path)
}

// turn acquires the lock, goes through one section and releases. Its error is not about
// a lock that was lost.
func (w *worker) turn(ctx context.Context, acquire contender, path int) error {
	asked := tick()
	h, err := acquire(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	got := tick()
	if ctx.Err() != nil {
		w.countLate()
		return h.Release()
	}
	v, err := w.visit(h, path, got)
	released := h.Release()
	if w.task.RTT > 0 { // elsewhere the clock alone is a twentieth of the shortest turns
		w.countRelease(tick().sub(v.left))
	}
	if errors.Is(released, tier.ErrLost) || errors.Is(released, zklock.ErrLost) {
		v.lost, released = true, nil
	}
	w.record(v, path, got.sub(asked), v.left.sub(got))
	return errors.Join(err, released)
}

// countLate counts a turn that came after the end of the run.
func (w *worker) countLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Late++
}

func (w *worker) countRelease(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	keep(w.releases, took)
}

// visit is what one section showed.
type visit struct {
	overlap, regression, lost, completed bool

	passage passage
	passed  bool // there was one
	left    instant
}

func (w *worker) visit(h held, path int, got instant) (v visit, err error) {
	v.left = got
	r, process := w.registers[path], int64(w.task.Process)
	s, err := r.enter()
	if err != nil {
		return v, err
	}
	v.overlap = s.overlap
	v.passage, v.passed = r.arrive(process, got)
	if w.task.Section > 0 {
		sleep(context.Background(), h.Lost(), w.task.Section)
	}
	v.left = tick()
	r.depart(process, v.left)
	if h.Err() != nil {
		v.lost = true
		return v, s.abandon()
	}
	v.regression, err = s.leave(h.Token(), process)
	v.completed = err == nil
	return v, err
}

func (w *worker) record(v visit, path int, wait, inside time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.InSection += inside
	w.found.Overlaps += count(v.overlap)
	w.found.Regressions += count(v.regression)
	w.found.Lost += count(v.lost)
	if !v.completed {
		return
	}
	w.found.Sections[path]++
	keep(w.waits, wait)
	if v.passed {
		keep(w.handOvers, v.passage.handOver)
	}
	if v.passage.away > 0 {
		keep(w.aways, v.passage.away)
	}
}

func count(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (w *worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Errors[kind(err)]++
}

// kind is the text of the error at the root of err, which has no path or address in it.
func kind(err error) string {
	for {
		switch e := err.(type) { //nolint:errorlint // this is the walk along the chain
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err.Error()
			}
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			err = e.Unwrap()[0]
		default:
			return err.Error()
		}
	}
}

// sleep waits for d, for the end of ctx or for a loss, whichever comes first.
func sleep(ctx context.Context, lost <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-lost:
	case <-timer.C:
	}
}
