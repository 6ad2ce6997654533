package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/tier"
)

// A job is a goroutine of a process that wants a lock for a while.
type job struct {
	id      int
	worker  *worker
	path    string
	ticket  int // order of arrival; those that come together share one, and 0 is without order
	manner  manner
	try     bool
	section time.Duration // how long it holds the lock
	nested  int           // times it enters again below the first hold
	heeds   bool          // it stops working when the lock is lost
	spoils  bool          // at its release, the next one in line gives up

	ctx      context.Context // bounds the wait
	cancel   context.CancelFunc
	deadline time.Time // of ctx, zero if there is none
	done     bool      // guarded by World.mu
}

// A manner is a way to use the lock.
type manner string

const (
	plain     manner = "plain"
	do        manner = "Do"
	outermost manner = "outermost first" // nested holds are released in the order of their acquisition
	twice     manner = "twice"           // released once too often
	again     manner = "again"           // a second acquisition with the dead context of the first
	guarded   manner = "guarded"         // writes through Hold.Multi
)

func (j *job) String() string { return fmt.Sprintf("%s#%d", j.worker, j.id) }

func (j *job) describe() string {
	text := fmt.Sprintf("%v %s, %s, section %v, nested %d, heeds %v", j, j.path, j.manner, j.section, j.nested, j.heeds)
	if j.try {
		text += ", try"
	}
	if !j.deadline.IsZero() {
		text += fmt.Sprintf(", deadline in %v", time.Until(j.deadline))
	}
	return text
}

// drawJob decides everything about a job but its place among others.
func (w *World) drawJob(rng *rand.Rand, p *worker) *job {
	paths := w.plan.paths()
	j := &job{
		worker: p,
		path:   paths[rng.IntN(len(paths))],
		manner: []manner{plain, plain, plain, do, outermost, twice, again, guarded}[rng.IntN(8)],
		try:    rng.IntN(8) == 0,
		heeds:  rng.IntN(2) == 0,
	}
	j.spoils = rng.IntN(5) == 0
	if rng.IntN(4) == 0 {
		j.nested = 1 + rng.IntN(3)
	}
	j.section = min(drawSection(rng), w.plan.maxSection())
	if j.try && j.manner == do {
		j.manner = plain
	}
	if rng.IntN(2) == 0 {
		j.ctx, j.cancel = context.WithCancel(w.ctx)
	} else {
		bound := around(rng, []time.Duration{time.Millisecond, 30 * time.Millisecond, time.Second, sessionTimeout}[rng.IntN(4)])
		j.deadline = time.Now().Add(bound)
		j.ctx, j.cancel = context.WithDeadline(w.ctx, j.deadline)
	}
	return j
}

func drawSection(rng *rand.Rand) time.Duration {
	switch n := rng.IntN(100); {
	case n < 40:
		return 0
	case n < 80:
		return around(rng, 5*time.Millisecond)
	case n < 92:
		return around(rng, 100*time.Millisecond)
	}
	return around(rng, sessionTimeout)
}

// around spreads d, down to the nanosecond: two clocks must not meet by accident.
func around(rng *rand.Rand, d time.Duration) time.Duration {
	return d/2 + time.Duration(rng.Int64N(int64(d)))
}

// start runs j in a goroutine.
func (w *World) start(j *job) {
	w.mu.Lock()
	w.jobs = append(w.jobs, j)
	j.id = len(w.jobs)
	w.mu.Unlock()
	w.diary.note("step: %s", j.describe())
	w.tasks.Go(func() {
		defer j.cancel()
		w.run(j)
		w.mu.Lock()
		defer w.mu.Unlock()
		j.done = true
	})
}

func (w *World) run(j *job) {
	mu := j.worker.mutex[j.path]
	if !j.try {
		w.book.queued(j)
	}
	if j.manner == do {
		called := false
		err := mu.Do(j.ctx, func(ctx context.Context) error {
			called = true
			return w.work(j, ctx)
		})
		if !called {
			w.refused(j, err)
		} else if err != nil && !errors.Is(err, tier.ErrLost) {
			w.diary.violate("API", "%v: Do returned %v", j, err)
		}
		return
	}
	acquire := mu.Acquire
	if j.try {
		acquire = mu.TryAcquire
	}
	hold, err := acquire(j.ctx)
	if err != nil {
		w.refused(j, err)
		return
	}
	w.inTime(j)
	t := w.book.grant(j, hold)
	ctx := hold.Context(w.ctx)
	if j.manner == guarded {
		w.writeGuarded(j, hold, j.section/2)
	} else {
		w.section(j, ctx, hold, j.section/2)
	}
	inner := w.enterAgain(j, ctx, t)
	w.section(j, ctx, hold, j.section/2)
	w.giveUp(j, t, hold, inner)
	if ctx.Err() == nil {
		w.diary.violate("API", "%v: the context of a released hold lives", j)
	}
	if j.manner == again {
		w.acquireAgain(j, ctx)
	}
}

// work is the body of Do. It has no hold of its own, so it enters again to get one.
func (w *World) work(j *job, ctx context.Context) error {
	w.inTime(j)
	hold, err := j.worker.mutex[j.path].Acquire(ctx)
	if err != nil {
		w.book.left(j)
		if !errors.Is(err, tier.ErrLost) && !errors.Is(err, context.Canceled) { // by the job's own giving up
			w.diary.violate("API", "%v: cannot enter again in Do: %v", j, err)
		}
		return nil
	}
	t := w.book.grant(j, hold)
	w.section(j, ctx, hold, j.section)
	w.book.release(t) // Do lets go right after this one
	w.released(j, hold)
	return nil
}

func (w *World) refused(j *job, err error) {
	w.book.left(j)
	w.diary.note("%v ends: %v", j, err)
	w.inTime(j)
	w.book.checkOutcome(j, err)
}

// inTime is part of I9: a wait ends with its context.
func (w *World) inTime(j *job) {
	if late := time.Since(j.deadline); !j.deadline.IsZero() && late > 0 {
		w.diary.violate("I9", "%v waited %v longer than it was told to", j, late)
	}
}

// section is what the lock is for.
func (w *World) section(j *job, ctx context.Context, hold *tier.Hold, d time.Duration) {
	begin := time.Now()
	stop := ctx.Done()
	if !j.heeds {
		stop = nil
	}
	select {
	case <-time.After(d):
	case <-stop:
		ends := w.ctx
		if j.manner == do { // which does not tell the context of the wait from that of the work
			ends = j.ctx
		}
		if ends.Err() == nil && (!errors.Is(context.Cause(ctx), tier.ErrLost) || hold.Err() == nil) {
			w.diary.violate("API", "%v: context ended with %v, hold says %v", j, context.Cause(ctx), hold.Err())
		}
		w.diary.note("%v stops after %v: %v", j, time.Since(begin), context.Cause(ctx))
	}
}

func (w *World) writeGuarded(j *job, hold *tier.Hold, bound time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, bound)
	defer cancel()
	_, err := tierlock.Multi(ctx, hold, &zk.SetDataRequest{
		Path: register(j.path), Data: []byte(strconv.FormatInt(hold.Token(), 10)), Version: -1,
	})
	w.diary.note("%v writes under guard: %v", j, err)
}
