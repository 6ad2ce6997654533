package sim

import (
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

// A tries says how many jobs of a cohort try to get the lock, and when the last one before ended, whose node may be gone later.
type tries struct {
	count int
	ended time.Time
}

// answered notes that a job waits no more.
func (b *book) answered(j *job) {
	if _, ok := b.waiting[j]; j.try && ok {
		b.tried[j.cohort()] = tries{b.tried[j.cohort()].count - 1, time.Now()}
	}
	delete(b.waiting, j)
	if !j.passed.IsZero() && time.Now().After(j.passed) {
		b.diary.violate("I6", "somebody overtook %v, which came first and waited on", j)
	}
}

// checkArrival is the local half of I6: nobody overtakes a goroutine of the same process that still waits. Readers, and those who
// want permits, may be let in together and then come back in any order, but at the same time.
func (b *book) checkArrival(j *job) {
	if j.ticket == 0 {
		return
	}
	for other := range b.waiting {
		switch {
		case other.try, other.cohort() != j.cohort(), other.ticket == 0, other.ticket >= j.ticket,
			other.ctx.Err() != nil, j.worker.closing():
		case !(j.reads() && other.reads()) && j.permits == 0:
			b.diary.violate("I6", "%v overtook %v, which came first and still waits", j, other)
		case other.passed.IsZero():
			other.passed = time.Now()
		}
	}
}

// checkPlace is called when n is gone. A node that was never used goes only when nobody is left of those that it was
// made for: so whoever gives up takes nothing from the others, and the process keeps its place in the queue (I9).
func (b *book) checkPlace(n *node) {
	if len(b.plan.Troubles) > 0 || b.plan.Worn || !n.served.IsZero() {
		return
	}
	if tried := b.tried[n.cohort()]; tried.count > 0 || time.Since(tried.ended) < 40*b.plan.Latency { // it may be of one who tries
		return
	}
	sent := n.created.Add(-10 * b.plan.Latency) // before that: it was not made for somebody who had left by then
	var left *job
	for j := range b.waiting {
		switch {
		case j.try, j.cohort() != n.cohort():
		case n.reads() && !j.reads(): // whoever is first may write now, and it does not do
			return
		case j.since.Before(sent) && j.ctx.Err() == nil && !j.worker.closing():
			left = j
		}
	}
	if left != nil {
		b.diary.violate("I9", "%s is gone, for which %v has waited since before", short(n.path), left)
	}
}

// checkTokens is I8.
func (b *book) checkTokens(t *tenure) {
	if !t.node.revoked.IsZero() {
		return
	}
	lock := t.node.lock
	before, highest := b.writer[lock], b.highest[lock]
	if !t.reads {
		before, b.writer[lock] = highest, t
	}
	if highest == nil || t.token >= highest.token {
		b.highest[lock] = t
	}
	switch {
	case before == nil:
	case t.token < before.token:
		b.diary.violate("I8", "%v got token %d after %v got %d", t.job, t.token, before.job, before.token)
	case t.token == before.token && t.node != before.node:
		b.diary.violate("I8", "%v and %v got the same token %d", t.job, before.job, t.token)
	}
}

// checkPatience is I11. Faults can make any wait longer.
func (b *book) checkPatience(t *tenure) {
	n := t.node
	if !n.served.IsZero() {
		return
	}
	n.served = time.Now()
	if wait, due := n.served.Sub(n.created), b.due(n); len(b.plan.Troubles) == 0 && wait > due {
		b.diary.violate("I11", "%v waited %v for its turn with %s, at most %v are due", n.owner, wait, short(n.path), due)
	}
}

// due is the bound of I11: how long a node may wait for those that were ahead of it.
func (b *book) due(n *node) time.Duration {
	perFrame := 20 * b.plan.Latency
	due := perFrame
	between := time.Duration(0) // readers behind the last that does not read
	for _, a := range n.ahead { // as they were then: a writer may have been shared since
		// One section may begin at the end of the budget. Another one may run before it: the process looks for
		// contenders, and the budget begins, only when somebody waits for a hand-off, or reads.
		between += a.owner.handOff + 2*b.plan.maxSection() + handOver + perFrame
		if n.mode != second.Reading || a.mode != second.Reading {
			due, between = due+between, 0
		}
	}
	return due
}

// handOver is what a node may take to pass from process to process, besides the time its frames take.
const handOver = time.Millisecond
