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
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A job is a goroutine of a process that wants a lock for a while.
type job struct {
	id      int
	worker  *worker
	path    string
	mode    second.Mode
	permits int // that it wants of the semaphore; 0 if it is for a lock
	ticket  int // order of arrival; those that come together share one, and 0 is without order
	manner  manner
	try     bool
	section time.Duration // how long it holds the lock
	inner   []second.Mode // in which it enters again below the first hold
	heeds   bool          // it stops working when the lock is lost
	spoils  bool          // at its release, the next one in line gives up

	ctx      context.Context // bounds the wait
	cancel   context.CancelFunc
	deadline time.Time // of ctx, zero if there is none
	done     bool      // guarded by World.mu

	since  time.Time // it asks; guarded by book.mu, like the next one
	passed time.Time // by one that came later, when it is let in itself
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
	downgrade manner = "downgrade"       // of a writer, which goes on reading
	upgrade   manner = "upgrade"         // of a reader, which must not become the writer
)

func (j *job) String() string { return fmt.Sprintf("%s#%d", j.worker, j.id) }

func (j *job) reads() bool { return j.mode == second.Reading }

func (j *job) cohort() cohort { return cohort{j.worker, j.path, j.mode != second.Exclusive} }

// side returns what the job asks for the lock.
func (j *job) side() *tier.Mutex { return j.worker.side(j.path, j.mode) }

func (j *job) describe() string {
	text := fmt.Sprintf("%v %s, mode %d, %s, section %v, nested %v, heeds %v", j, j.path, j.mode, j.manner, j.section,
		j.inner, j.heeds)
	if j.permits > 0 {
		text += fmt.Sprintf(", %d permits", j.permits)
	}
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
	if w.plan.Permits > 0 && rng.IntN(4) == 0 {
		return w.drawPermits(rng, p)
	}
	path := rng.IntN(w.plan.Paths)
	return w.drawJobFor(rng, p, w.plan.paths()[path], w.plan.drawMode(rng, path))
}

func (w *World) drawJobFor(rng *rand.Rand, p *worker, path string, mode second.Mode) *job {
	j := &job{
		worker: p,
		path:   path,
		mode:   mode,
		manner: []manner{plain, plain, plain, do, outermost, twice, again, guarded}[rng.IntN(8)],
		try:    rng.IntN(8) == 0,
		heeds:  rng.IntN(2) == 0,
	}
	j.spoils = rng.IntN(5) == 0
	if rng.IntN(4) == 0 {
		for range 1 + rng.IntN(3) {
			j.inner = append(j.inner, drawInner(rng, mode))
		}
	}
	switch {
	case mode == second.Writing && rng.IntN(4) == 0:
		j.manner, j.inner = downgrade, append(j.inner, second.Reading)
	case mode == second.Reading && rng.IntN(6) == 0:
		j.manner = upgrade
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

// drawInner decides in which mode one enters again who has the lock in a mode.
func drawInner(rng *rand.Rand, outer second.Mode) second.Mode {
	if outer == second.Writing && rng.IntN(2) == 0 {
		return second.Reading
	}
	return outer
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

// arrive starts j, behind all jobs that arrived before.
func (w *World) arrive(j *job) {
	w.book.tickets++
	j.ticket = w.book.tickets
	w.start(j)
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
		if j.permits > 0 {
			w.runPermits(j)
		} else {
			w.run(j)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		j.done = true
	})
}

func (w *World) run(j *job) {
	mu := j.side()
	w.book.queued(j)
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
	switch j.manner {
	case guarded:
		w.writeGuarded(j, hold, j.section/2)
	case upgrade:
		w.refuseUpgrade(j, ctx)
		fallthrough
	default:
		w.section(j, ctx, hold, j.section/2)
	}
	inner := w.enterAgain(j, ctx, t)
	if j.manner != downgrade { // which has yet to go on
		w.section(j, ctx, hold, j.section/2)
	}
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
	hold, err := j.side().Acquire(ctx)
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

// held is a hold, or permits.
type held interface {
	Lost() <-chan struct{}
	Err() error
	Release() error
}

// section is what the lock is for.
func (w *World) section(j *job, ctx context.Context, hold held, d time.Duration) {
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
