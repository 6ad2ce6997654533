package sim

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// queued notes that a job is about to ask for its lock.
func (b *book) queued(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j.since = time.Now()
	if j.try {
		tried := b.tried[j.cohort()]
		tried.count++
		b.tried[j.cohort()] = tried
	}
	b.waiting[j] = struct{}{}
}

// next returns the job of the same process that has waited longest for the same lock, nil if none waits.
func (b *book) next(j *job) (next *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.waiting {
		if other.cohort() == j.cohort() && !other.try && other.ticket != 0 && (next == nil || other.id < next.id) {
			next = other
		}
	}
	return next
}

// left notes that a job did not get its lock.
func (b *book) left(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered(j)
}

// grant notes that a job got its lock, and checks that it may.
func (b *book) grant(j *job, hold *tier.Hold) *tenure {
	b.mu.Lock()
	defer b.mu.Unlock()
	lostBefore := closed(hold.Lost())
	err := hold.Err()
	t := &tenure{job: j, token: hold.Token(), hold: hold, node: b.byToken[tokenAt{register(j.path), hold.Token()}], reads: hold.Shared()}
	b.diary.note("%v has the lock, token %d, err %v", j, t.token, err)
	b.granted++
	b.answered(j)
	if t.node == nil || t.node.cohort() != j.cohort() {
		b.diary.violate("I8", "%v got token %d, which is no node of its process for this lock", j, t.token)
		return t
	}
	if t.reads != j.reads() {
		b.diary.violate("API", "%v asked for %v and got a hold that says shared %t", j, j.mode, t.reads)
	}
	b.checkGate(t)
	b.checkArrival(j)
	switch {
	case err == nil:
		b.checkExclusion(t)
		b.checkTokens(t)
		b.checkPatience(t)
	case !lostBefore, strings.Contains(err.Error(), "ran out"):
		// No time passes between grant and return: the lease was over at the grant.
		b.diary.violate("I7", "%v was granted after its lease: %v", j, err)
	}
	b.tenures[t] = struct{}{}
	return t
}

// downgrade notes that the last hold of a tenure that writes is about to be released, while others, that read, remain.
func (b *book) downgrade(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.diary.note("%v writes no more, err %v", t.job, t.hold.Err())
	t.reads = true
}

// release notes that the last hold of a tenure is about to be released.
func (b *book) release(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkTold(t)
	b.diary.note("%v releases, err %v", t.job, t.hold.Err())
	delete(b.tenures, t)
}

// beside reports whether both may have the lock at the same time.
func (t *tenure) beside(other *tenure) bool { return t.reads && other.reads }

// checkGate is I2: whatever became of its lease, the owner before has to be through.
func (b *book) checkGate(t *tenure) {
	for other := range b.tenures {
		if other.node.cohort() == t.node.cohort() && !t.beside(other) {
			b.diary.violate("I2", "%v has the lock while %v has not released it", t.job, other.job)
		}
	}
}

// checkExclusion is I1, and what it rests on: the server has nobody before the node in the queue but readers before one that
// reads. It counts for nodes that no operator deleted.
func (b *book) checkExclusion(t *tenure) {
	if !t.node.revoked.IsZero() {
		return
	}
	for other := range b.tenures {
		if other.node.cohort() != t.node.cohort() && other.node.lock == t.node.lock && !t.beside(other) &&
			other.node.revoked.IsZero() && other.hold.Err() == nil {
			b.diary.violate("I1", "%v has the lock while %v has it, too", t.job, other.job)
		}
	}
	if t.node.reads() && !t.reads {
		b.diary.violate("I1", "%v writes with %s, a node to read", t.job, short(t.node.path))
	}
	if t.node.session != b.newest[t.node.owner] {
		b.diary.violate("I7", "%v has the lock with a node of session %#x, which is over for its process", t.job, t.node.session)
	}
	if t.node.gone || t.node.halved {
		b.diary.violate("I7", "%v has the lock, whose node is gone from the server", t.job)
	}
	for _, n := range b.queues[t.node.lock] {
		if n.token < t.token && !n.halved && !t.node.beside(n) {
			b.diary.violate("I6", "%v has the lock while %s of %v is before it in the queue", t.job, short(n.path), n.owner)
		}
	}
}

// checkTold is I7 for what no lease covers: a holder whose node was taken away has to be told, though not before it
// can be, nor before the node has been held for long enough to be watched.
func (b *book) checkTold(t *tenure) {
	if t.node.revoked.IsZero() || closed(t.hold.Lost()) {
		return
	}
	if slices.Contains(b.plan.Troubles, Lag) { // a member tells what it knows, and it may fall behind without end
		return
	}
	grace := 20*b.plan.Latency + time.Millisecond
	if b.plan.networked() {
		grace = 2 * sessionTimeout
	}
	unwatched := max(0, t.node.served.Add(sessionTimeout/6).Sub(t.node.revoked))
	if since := time.Since(t.node.revoked); since > unwatched+grace {
		b.diary.violate("I7", "%v was not told for %v that its node is gone", t.job, since)
	}
}

// audit checks what may go wrong without an event.
func (b *book) audit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range b.tenures {
		b.checkTold(t)
	}
}

// A tokenAt is the token of a node: those of different locks that were made in one transaction have the same one.
type tokenAt struct {
	register string // of the lock
	token    int64
}

// register is the node that jobs with a lock write to through Hold.Multi; its content is the writer's token.
func register(lock string) string { return "/register" + strings.ReplaceAll(lock, "/", "-") }

// written checks that a guarded write came from a node that is there, and not after one with a higher token.
func (b *book) written(view zktest.View, c zktest.Change) {
	data, _, _ := view.Get(c.Path)
	token, err := strconv.ParseInt(string(data), 10, 64)
	n := b.byToken[tokenAt{c.Path, token}]
	switch {
	case err != nil || n == nil:
		b.diary.violate("guard", "the register holds %q", data)
	case n.gone || !view.Exists(n.path), n.second != "" && !view.Exists(n.second):
		b.diary.violate("guard", "a write under %s took effect after the node", n.path)
	default:
		b.checkFence(n, c.Path)
	}
}

// A fence is the highest token of those that have written to a register, and of those of them that had the lock alone.
type fence struct{ any, alone int64 }

// checkFence is I8 for writes: among readers that overlap, tokens say nothing.
func (b *book) checkFence(n *node, register string) {
	f := b.fences[register]
	bound := f.any
	if n.reads() {
		bound = f.alone
	}
	if n.token < bound {
		b.diary.violate("guard", "a write with token %d came after one with %d", n.token, bound)
	}
	f.any = max(f.any, n.token)
	if !n.reads() {
		f.alone = max(f.alone, n.token)
	}
	b.fences[register] = f
}

// checkOutcome checks an error that a job got for its lock.
func (b *book) checkOutcome(j *job, err error) {
	switch {
	case j.try, errors.Is(err, tier.ErrClosed) && j.worker.closing():
	case j.ctx.Err() == nil:
		b.diary.violate("progress", "%v failed without need: %v", j, err)
	case !errors.Is(err, j.ctx.Err()):
		b.diary.violate("I9", "%v: the error %q does not tell why it ended", j, err)
	}
}

// keeps notes which hold of a tenure will be released last.
func (b *book) keeps(t *tenure, hold *tier.Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.hold = hold
}
