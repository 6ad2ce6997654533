package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing/synctest"
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

// enterAgain acquires below a hold, which must succeed at once as long as the lock is held.
func (w *World) enterAgain(j *job, ctx context.Context, t *tenure) []*tier.Hold {
	var inner []*tier.Hold
	begin := time.Now()
	for i, mode := range j.inner {
		side := j.worker.side(j.path, mode)
		acquire := side.Acquire
		if i%2 == 1 {
			acquire = side.TryAcquire
		}
		with := ctx
		if i%3 == 0 { // what carries the hold need not end with it
			with = context.WithoutCancel(ctx)
		}
		lost := closed(t.hold.Lost())
		hold, err := acquire(with)
		switch {
		case err == nil && lost:
			w.diary.violate("API", "%v entered again though the lock was lost", j)
			inner = append(inner, hold)
		case err == nil && hold.Token() != t.token:
			w.diary.violate("API", "%v entered again with token %d instead of %d", j, hold.Token(), t.token)
		case err == nil && hold.Shared() != (mode == second.Reading):
			w.diary.violate("API", "%v entered again in mode %d, and the hold says shared %t", j, mode, hold.Shared())
			inner = append(inner, hold)
		case err == nil:
			inner = append(inner, hold)
			ctx = hold.Context(ctx)
		case !errors.Is(err, tier.ErrLost):
			w.diary.violate("API", "%v cannot enter again: %v", j, err)
		}
	}
	if took := time.Since(begin); took > 0 {
		w.diary.violate("API", "%v took %v to enter again", j, took)
	}
	return inner
}

// refuseUpgrade asks to write with the context of a hold to read, which must be refused at once.
func (w *World) refuseUpgrade(j *job, ctx context.Context) {
	begin := time.Now()
	writer := j.worker.side(j.path, second.Writing)
	acquire := writer.Acquire
	if j.heeds {
		acquire = writer.TryAcquire
	}
	if _, err := acquire(ctx); !errors.Is(err, tier.ErrUpgrade) && !errors.Is(err, tier.ErrLost) {
		w.diary.violate("API", "%v asks to write while it reads, and gets %v", j, err)
	}
	if took := time.Since(begin); took > 0 {
		w.diary.violate("API", "%v asks to write while it reads, which takes %v", j, took)
	}
}

// acquireAgain queues with a context that carries a released hold: like anybody else.
func (w *World) acquireAgain(j *job, dead context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(dead), time.Second)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	deadline, _ := ctx.Deadline()
	next := &job{id: j.id, worker: j.worker, path: j.path, mode: j.mode, manner: plain, ctx: ctx, deadline: deadline}
	w.book.queued(next)
	hold, err := j.side().Acquire(ctx)
	if err != nil {
		w.refused(next, err)
		return
	}
	w.inTime(next)
	t := w.book.grant(next, hold)
	w.giveUp(next, t, hold, nil)
}

// giveUp releases all holds of a tenure, in one order or the other.
func (w *World) giveUp(j *job, t *tenure, outer *tier.Hold, inner []*tier.Hold) {
	holds := append([]*tier.Hold{outer}, inner...)
	switch j.manner {
	case outermost:
	case downgrade:
		slices.SortStableFunc(holds, writersFirst)
	default:
		slices.Reverse(holds)
	}
	last := len(holds) - 1
	w.book.keeps(t, holds[last])
	for i, hold := range holds {
		if i == last {
			w.spoil(j)
		}
		rest := holds[i+1:]
		readsOn := !t.reads && i < last && !slices.ContainsFunc(rest, writes)
		switch {
		case i == last:
			w.book.release(t)
		case readsOn:
			w.book.downgrade(t)
		}
		w.released(j, hold)
		if readsOn && j.manner == downgrade {
			ctx := rest[0].Context(w.ctx)
			w.refuseUpgrade(j, ctx)
			w.section(j, ctx, rest[0], j.section/2)
		}
	}
	if j.manner == twice {
		if err := outer.Release(); !errors.Is(err, tier.ErrReleased) {
			w.diary.violate("API", "%v: a second release returned %v", j, err)
		}
	}
}

// spoil has the next one in line give up.
func (w *World) spoil(j *job) {
	if next := w.book.next(j); j.spoils && next != nil {
		w.diary.note("%v gives up as its turn comes", next)
		next.cancel() // it may be chosen before it gets to know
	}
}

func writes(hold *tier.Hold) bool { return !hold.Shared() }

func writersFirst(a, b *tier.Hold) int {
	switch {
	case writes(a) == writes(b):
		return 0
	case writes(a):
		return -1
	}
	return 1
}

// released releases a hold. Whatever the network does, that takes a third of the session timeout at most.
func (w *World) released(j *job, hold held) {
	begin, lost := time.Now(), closed(hold.Lost())
	err := hold.Release()
	if err != nil {
		w.diary.note("%v released: %v", j, err)
	}
	switch {
	case lost && !errors.Is(err, tier.ErrLost):
		w.diary.violate("API", "%v: the lock was lost, the release returned %v", j, err)
	case err != nil && !errors.Is(err, tier.ErrLost):
		w.diary.violate("API", "%v: the release returned %v", j, err)
	}
	if took := time.Since(begin); took > sessionTimeout/3 {
		w.diary.violate("I4", "%v: the release took %v", j, took)
	}
	if !errors.Is(hold.Err(), tier.ErrReleased) {
		w.diary.violate("API", "%v: a released hold says %v", j, hold.Err())
	}
}

// stream has readers of one process come so often that there is always one inside, and somewhere among them one that does not
// read, anywhere.
func (w *World) stream(rng *rand.Rand) {
	path := rng.IntN(w.plan.Paths)
	if w.plan.Uses[path] == OfMutex {
		return
	}
	p, other := w.worker(rng.IntN(w.plan.Processes)), w.worker(rng.IntN(w.plan.Processes))
	n := 8 + rng.IntN(16)
	for i, mode := range slices.Insert(slices.Repeat([]second.Mode{second.Reading}, n), rng.IntN(n/2), second.Writing) {
		j := w.drawJobFor(rng, p, w.plan.paths()[path], mode)
		if mode == second.Reading {
			j.section = min(around(rng, 15*time.Millisecond), w.plan.maxSection())
		} else {
			j.worker = other
		}
		w.arrive(j)
		if i < n {
			time.Sleep(around(rng, 4*time.Millisecond))
			synctest.Wait()
		}
	}
}

// wornFrom is the number of a lock node from which on its path is to be made anew.
const wornFrom = 1 << 30

// wear brings the numbers of a lock path close to where it is worn, now and then. No number is given out twice. Nothing
// else must be running.
func (w *World) wear(i int) {
	rng := rand.New(rand.NewPCG(w.plan.Seed, 1<<32+uint64(i)))
	path := w.plan.paths()[rng.IntN(w.plan.Paths)]
	next := int32(wornFrom - rng.IntN(8))
	_, stat, ok := w.server.Get(path)
	if created := int32(uint32(stat.Cversion+stat.NumChildren) / 2); w.plan.Worn && rng.IntN(8) == 0 && ok && created < next {
		w.diary.note("step: %s wears, its next number is %d", path, next)
		w.server.SetSequence(path, next)
	}
}
