package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// contend is the loop of one goroutine: it makes one acquisition after another, each on a random path.
func (w *worker) contend(ctx context.Context, goroutine int) {
	random := rand.New(rand.NewPCG(w.task.Seed, uint64(w.task.Process)<<32|uint64(goroutine)))
	contenders := make([]store.Contender, len(w.task.LockPaths))
	for i, path := range w.task.LockPaths {
		c, err := w.locker.Contender(path)
		if err != nil {
			w.fail(err)
			return
		}
		contenders[i] = c
	}
	choose := w.task.chooser(random, len(contenders))
	for ctx.Err() == nil {
		path := choose()
		if err := w.takeTurn(ctx, random, contenders[path], path, goroutine); err != nil {
			w.fail(err)
			clock.Sleep(retryPause, ctx.Done())
		}
		if w.task.Think > 0 {
			clock.Sleep(time.Duration(random.Int64N(2*int64(w.task.Think))), ctx.Done())
		}
	}
}

// chooser returns a function that chooses one of n paths.
func (c *Config) chooser(random *rand.Rand, n int) func() int {
	if c.Zipf == 0 {
		return func() int { return random.IntN(n) }
	}
	zipf := rand.NewZipf(random, c.Zipf, 1, uint64(n-1))
	return func() int { return int(zipf.Uint64()) }
}

func (w *worker) takeTurn(ctx context.Context, random *rand.Rand, acquire store.Contender, path, goroutine int) error {
	if w.witness != nil {
		return w.witness.turn(ctx, random, acquire, path)
	}
	return w.turn(ctx, acquire, path, w.rule.Draw(random), goroutine)
}

// turn acquires the lock, runs one section and releases the lock. If the lock was lost, turn records that and returns no error.
func (w *worker) turn(ctx context.Context, acquire store.Contender, path int, weight int64, goroutine int) error {
	asked := clock.Tick()
	h, err := acquire(ctx, weight)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	got := clock.Tick()
	if ctx.Err() != nil {
		w.countLate()
		return h.Release()
	}
	v, err := w.visit(h, path, weight, got)
	released := h.Release()
	if w.task.RTT > 0 { // without an RTT, reading the clock would take a twentieth of the time of the shortest turns
		w.countRelease(clock.Tick().Sub(v.left))
	}
	if errors.Is(released, store.ErrLost) {
		v.lost, released = true, nil
	}
	w.record(v, path, weight, goroutine, got.Sub(asked), v.left.Sub(got))
	return errors.Join(err, released)
}

// countLate counts an acquisition that returned after the end of the run.
func (w *worker) countLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Late++
}

func (w *worker) countRelease(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.releases.Keep(took)
}

// visit is the record of one section.
type visit struct {
	overlap, regression, torn, lost, completed bool

	passage evidence.Passage
	passed  bool // the section had a passage
	left    clock.Instant
}

func (w *worker) visit(h store.Hold, path int, weight int64, got clock.Instant) (v visit, err error) {
	v.left = got
	r, process := w.registers[path], int64(w.task.Process)
	s, err := r.Enter(weight)
	if err != nil {
		return v, err
	}
	v.overlap = s.Overlap
	mutex := w.rule.Room == 1 // otherwise several sections may end before the next one begins
	if mutex {
		v.passage, v.passed = r.Arrive(process, got)
	}
	if w.task.Section > 0 {
		clock.Sleep(w.task.Section, h.Lost())
	}
	v.left = clock.Tick()
	if mutex {
		r.Depart(process, v.left)
	}
	if h.Err() != nil {
		v.lost = true
		return v, s.Abandon()
	}
	v.regression, v.torn, err = s.Leave(h.Token(), process)
	v.completed = err == nil
	return v, err
}

func (w *worker) record(v visit, path int, weight int64, goroutine int, wait, inside time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.InSection += inside
	w.found.Used += w.rule.Used(weight, inside)
	if v.overlap {
		w.found.Overlaps++
	}
	if v.regression {
		w.found.Regressions++
	}
	if v.torn {
		w.found.Torn++
	}
	if v.lost {
		w.found.Lost++
	}
	if !v.completed {
		return
	}
	w.found.Sections[path]++
	w.found.Goroutines[goroutine]++
	if w.rule.Alone(weight) {
		w.waits.Keep(wait)
	} else {
		w.found.Shared[path]++
		w.shared.Keep(wait)
	}
	if v.passed {
		w.handOvers.Keep(v.passage.HandOver)
	}
	if v.passage.Away > 0 {
		w.aways.Keep(v.passage.Away)
	}
}

func (w *worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found.Errors[kind(err)]++
}

// The function kind returns the text of the innermost error in err, because that text has no path and no address.
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
