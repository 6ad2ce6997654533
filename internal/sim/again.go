package sim

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

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
