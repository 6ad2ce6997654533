package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// semaphorePath is that of the semaphore, in plans that have one: below it are the queue and the permits that are taken.
const (
	semaphorePath = "/locks/s"
	permitQueue   = semaphorePath + "/locks"
	permitHome    = semaphorePath + "/leases"
)

// A portion is what one job has of a semaphore, from the grant to the beginning of the release.
type portion struct {
	job     *job
	session int64
	permits *tier.Permits
}

func (w *World) drawPermits(rng *rand.Rand, p *worker) *job {
	j := w.drawJobFor(rng, p, semaphorePath, second.Exclusive)
	j.permits = 1 + min(rng.IntN(w.plan.Permits), rng.IntN(w.plan.Permits))
	j.inner = nil
	if j.manner != twice {
		j.manner = plain
	}
	return j
}

func (w *World) runPermits(j *job) {
	w.book.queued(j)
	acquire := j.worker.semaphore.Acquire
	if j.try {
		acquire = j.worker.semaphore.TryAcquire
	}
	permits, err := acquire(j.ctx, j.permits)
	if err != nil {
		w.refused(j, err)
		return
	}
	w.inTime(j)
	p := w.book.take(j, permits)
	w.section(j, permits.Context(w.ctx), permits, j.section)
	w.spoil(j)
	w.book.putBack(p)
	w.released(j, permits)
	if err := permits.Release(); j.manner == twice && !errors.Is(err, tier.ErrReleased) {
		w.diary.violate("API", "%v: a second release returned %v", j, err)
	}
}

// take notes that a job got what it wants, and checks that it may.
func (b *book) take(j *job, permits *tier.Permits) *portion {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &portion{job: j, session: b.newest[j.worker], permits: permits}
	b.diary.note("%v has %d permits, err %v", j, permits.Count(), permits.Err())
	b.granted++
	b.answered(j)
	b.checkArrival(j)
	if permits.Count() != j.permits {
		b.diary.violate("permits", "%v wants %d and has %d", j, j.permits, permits.Count())
	}
	b.portions[p] = struct{}{}
	if permits.Err() == nil {
		b.checkPermits(j)
		b.checkKept(p.session)
	}
	return p
}

// putBack notes that permits are about to be released.
func (b *book) putBack(p *portion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.diary.note("%v releases its permits, err %v", p.job, p.permits.Err())
	delete(b.portions, p)
}

// checkPermits is I1 for a semaphore: never are there more valid permits than there can be, unless a session was ended before
// its time.
func (b *book) checkPermits(j *job) {
	sum := 0
	for p := range b.portions {
		if p.permits.Err() == nil && !b.ended[p.session] {
			sum += p.permits.Count()
		}
	}
	if sum > b.plan.Permits {
		b.diary.violate("I1", "%v has permits, and %d of %d are in use", j, sum, b.plan.Permits)
	}
}

// checkKept is I7 for a semaphore: as many nodes are on the server as there are permits that nobody knows to be lost.
func (b *book) checkKept(session int64) {
	if b.ended[session] {
		return
	}
	kept, sum := 0, 0
	for _, owner := range b.leases {
		if owner == session {
			kept++
		}
	}
	for p := range b.portions {
		if p.session == session && !closed(p.permits.Lost()) {
			sum += p.permits.Count()
		}
	}
	if sum > kept {
		b.diary.violate("I7", "%v has %d permits and %d nodes", b.sessions[session], sum, kept)
	}
}

// permitsChanged follows a transaction that takes permits or gives some up, in which a node of the queue may have gone as well.
func (b *book) permitsChanged(changes []zktest.Change, first *node) {
	var turn *node
	ends := make(map[int64]bool) // sessions with fewer permits
	taken := false
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok:
		case c.Op == "delete" && z.lock == permitQueue && !z.forKazoo():
			turn = b.named[z.id]
		case z.marker != permitMarker:
		case c.Op == "create":
			taken = true
			b.leases[z.id], b.takers[z.id] = c.Session, b.sessions[c.Session]
			b.diary.note("server: permit %s of %v taken", short(c.Path), b.sessions[c.Session])
		case c.Op == "delete":
			b.permitDeleted(z, c)
			ends[c.Session] = true
		}
	}
	if len(b.leases) > b.plan.Permits {
		b.diary.violate("permits", "%d of %d are taken", len(b.leases), b.plan.Permits)
	}
	if taken && (turn == nil || turn != first) {
		b.diary.violate("I6", "permits were taken by another one than the first in the queue")
	}
	for session := range ends {
		// The channel of several permits is closed by a goroutine that follows the loss of one.
		time.AfterFunc(time.Nanosecond, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.checkKept(session)
		})
	}
}

func (b *book) permitDeleted(z znodeName, c zktest.Change) {
	by, of := b.sessions[c.Session], b.takers[z.id]
	b.diary.note("server: permit %s of %v deleted by %v", short(c.Path), of, by)
	if by != of {
		b.diary.violate("I12", "the permit %s of %v was deleted by %v", c.Path, of, by)
	}
	delete(b.leases, z.id)
}

// checkAllPermits: no permit is lost for good. Whoever asks for all of them gets them once nobody else has any.
func (w *World) checkAllPermits() {
	for _, p := range w.workers {
		if w.plan.Permits == 0 || p.closing() {
			continue
		}
		ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
		permits, err := p.semaphore.Acquire(ctx, w.plan.Permits)
		if err == nil {
			err = permits.Release()
		}
		if cancel(); err != nil {
			w.diary.violate("permits", "%v cannot have all of them: %v", p, err)
		}
	}
}
