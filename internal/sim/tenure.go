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

// queued notes that a job is about to wait for its lock.
func (b *book) queued(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[j] = struct{}{}
}

// next returns the job of the same process that has waited longest for the same lock, nil if none waits.
func (b *book) next(j *job) (next *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.waiting {
		if other.worker == j.worker && other.path == j.path && other.ticket != 0 && (next == nil || other.id < next.id) {
			next = other
		}
	}
	return next
}

// left notes that a job did not get its lock.
func (b *book) left(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, j)
}

// grant notes that a job got its lock, and checks that it may.
func (b *book) grant(j *job, hold *tier.Hold) *tenure {
	b.mu.Lock()
	defer b.mu.Unlock()
	lostBefore := closed(hold.Lost())
	err := hold.Err()
	t := &tenure{job: j, token: hold.Token(), hold: hold, node: b.byToken[hold.Token()]}
	b.diary.note("%v has the lock, token %d, err %v", j, t.token, err)
	b.granted++
	_, waited := b.waiting[j]
	delete(b.waiting, j)
	if t.node == nil || t.node.owner != j.worker || t.node.lock != j.path {
		b.diary.violate("I8", "%v got token %d, which is no node of its process", j, t.token)
		return t
	}
	b.checkGate(t)
	if waited {
		b.checkArrival(j)
	}
	switch {
	case err == nil:
		b.checkExclusion(t)
		b.checkOrder(t)
		b.checkPatience(t)
	case !lostBefore, strings.Contains(err.Error(), "ran out"):
		// No time passes between grant and return: the lease was over at the grant.
		b.diary.violate("I7", "%v was granted after its lease: %v", j, err)
	}
	b.tenures[t] = struct{}{}
	return t
}

// release notes that the last hold of a tenure is about to be released.
func (b *book) release(t *tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkTold(t)
	b.diary.note("%v releases, err %v", t.job, t.hold.Err())
	delete(b.tenures, t)
}

// checkGate is I2: whatever became of its lease, the owner before has to be through.
func (b *book) checkGate(t *tenure) {
	for other := range b.tenures {
		if other.node.owner == t.node.owner && other.node.lock == t.node.lock {
			b.diary.violate("I2", "%v has the lock while %v has not released it", t.job, other.job)
		}
	}
}

// checkExclusion is I1, and what it rests on: the server has the node at the head of the queue. It counts for nodes
// that no operator deleted.
func (b *book) checkExclusion(t *tenure) {
	if !t.node.revoked.IsZero() {
		return
	}
	for other := range b.tenures {
		if other.node.owner != t.node.owner && other.node.lock == t.node.lock && other.node.revoked.IsZero() && other.hold.Err() == nil {
			b.diary.violate("I1", "%v has the lock while %v has it, too", t.job, other.job)
		}
	}
	if t.node.session != b.newest[t.node.owner] {
		b.diary.violate("I7", "%v has the lock with a node of session %#x, which is over for its process", t.job, t.node.session)
	}
	if t.node.gone || t.node.halved {
		b.diary.violate("I7", "%v has the lock, whose node is gone from the server", t.job)
	}
	for _, n := range b.queues[t.node.lock] {
		if n.token < t.token && !n.halved {
			b.diary.violate("I6", "%v has the lock while %s of %v is before it in the queue", t.job, short(n.path), n.owner)
		}
	}
}

// checkOrder is I8.
func (b *book) checkOrder(t *tenure) {
	if !t.node.revoked.IsZero() {
		return
	}
	last := b.last[t.node.lock]
	b.last[t.node.lock] = t
	switch {
	case last == nil:
	case t.token < last.token:
		b.diary.violate("I8", "%v got token %d after %v got %d", t.job, t.token, last.job, last.token)
	case t.token == last.token && t.node != last.node:
		b.diary.violate("I8", "%v and %v got the same token %d", t.job, last.job, t.token)
	}
}

// checkArrival is the local half of I6: nobody overtakes a goroutine of the same process that still waits.
func (b *book) checkArrival(j *job) {
	if j.ticket == 0 {
		return
	}
	for other := range b.waiting {
		if other.worker == j.worker && other.path == j.path && other.ticket != 0 && other.ticket < j.ticket &&
			other.ctx.Err() == nil && !j.worker.closing() {
			b.diary.violate("I6", "%v overtook %v, which came first and still waits", j, other)
		}
	}
}

// checkPatience is I11. Faults can make any wait longer.
func (b *book) checkPatience(t *tenure) {
	if n := t.node; len(b.plan.Troubles) == 0 && n.served.IsZero() {
		var bound time.Duration
		for _, p := range n.ahead {
			// One section may begin at the end of the budget. Another one may run before it: the process looks for
			// contenders, and the budget begins, only when somebody waits for a hand-off.
			bound += p.handOff + 2*b.plan.maxSection() + handOver + 20*b.plan.Latency
		}
		if wait := time.Since(n.created); wait > bound+20*b.plan.Latency {
			b.diary.violate("I11", "%v waited %v for its turn behind %v, at most %v are due", t.node.owner, wait, n.ahead, bound)
		}
	}
	if t.node.served.IsZero() {
		t.node.served = time.Now()
	}
}

// handOver is what a node may take to pass from process to process, besides the time its frames take.
const handOver = time.Millisecond

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

// register is the node that jobs with a lock write to through Hold.Multi; its content is the writer's token.
func register(lock string) string { return "/register" + strings.ReplaceAll(lock, "/", "-") }

// written checks that a guarded write came from a node that is there, and not after one with a higher token.
func (b *book) written(view zktest.View, c zktest.Change) {
	data, _, _ := view.Get(c.Path)
	token, err := strconv.ParseInt(string(data), 10, 64)
	n := b.byToken[token]
	switch {
	case err != nil || n == nil:
		b.diary.violate("guard", "the register holds %q", data)
	case n.gone || !view.Exists(n.path), n.second != "" && !view.Exists(n.second):
		b.diary.violate("guard", "a write under %s took effect after the node", n.path)
	case token < b.fences[c.Path]:
		b.diary.violate("guard", "a write with token %d came after one with %d", token, b.fences[c.Path])
	}
	b.fences[c.Path] = max(b.fences[c.Path], token)
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
