package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// blameLocked notes what is wrong first.
func (w *queues) blameLocked(judge, format string, args ...any) {
	if w.wrong == nil && judge != w.scope.ignore {
		w.wrong = fmt.Errorf(judge+": "+format, args...)
	}
}

// judge looks at what the last step has changed. What two processes have at the same time in one order of independent steps, they may not
// have in another, and only one of these is executed. So what excludes itself has to be ordered: the end of the one has to come before the
// begin of the other in each such order.
func (w *queues) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.spans {
		if x.end < 0 && x.hold.Err() != nil {
			x.end = w.step
		}
	}
	for _, at := range queueAt {
		w.judgeStoreLocked(at)
	}
	for _, x := range w.spans {
		if x.begin < 0 {
			w.judgeGrantLocked(x)
		}
	}
	for _, p := range w.processes {
		queues := false
		for _, c := range p.callers {
			w.judgeCallLocked(c)
			queues = queues || c.state == waiting
		}
		if !queues {
			w.entered = slices.DeleteFunc(w.entered, func(x *process) bool { return x == p })
		}
	}
}

// grantedLocked judges a grant at the moment at which the caller has it.
func (w *queues) grantedLocked(c *caller) {
	for _, x := range c.has {
		x.begin, x.end = -1, -1
		if err := x.hold.Err(); err != nil && !c.disturbed {
			w.blameLocked("lost", "%s is given what is lost: %v", c.name, err)
		}
		w.spans = append(w.spans, x)
	}
}

// judgeGrantLocked judges what has just begun.
func (w *queues) judgeGrantLocked(x *span) {
	x.begin = w.step
	if crowd := w.crowdLocked([]*span{x}, w.spans); crowd != nil {
		w.blameLocked("exclusion", "%s has it beside %s", x.name, crowd[1].name)
	}
	for _, y := range w.spans {
		if x.token == 0 || y.token == 0 || y.end < 0 || x.weight+y.weight <= whole {
			continue
		}
		if x.token < y.token || x.token == y.token && x.process != y.process {
			w.blameLocked("tokens", "%s has token %d, after %d of %s", x.name, x.token, y.token, y.name)
		}
	}
	for _, c := range x.process.callers {
		if c.state == waiting && c.after < x.after && c.call != Try && x.call != Try {
			w.blameLocked("order", "%s is served before %s, which came before it", x.name, c.name)
		}
	}
	i := slices.Index(w.entered, x.process)
	if others := func(c Call) bool { return c != Lock && c != Nested }; i > 0 && !slices.ContainsFunc(w.scope.Calls, others) {
		w.blameLocked("order", "%s is served before %s, which entered before it", x.name, w.entered[0].name)
	}
	if i >= 0 {
		w.entered = slices.Delete(w.entered, i, i+1)
	}
}

// crowdLocked adds to a crowd those who have something at once with all of it in some order, until that is more than there is.
func (w *queues) crowdLocked(crowd, others []*span) []*span {
	weight := 0
	for _, x := range crowd {
		weight += x.weight
	}
	if weight > whole {
		return crowd
	}
	for i, x := range others {
		if x.begin < 0 || slices.ContainsFunc(crowd, func(y *span) bool { return w.apart(x, y) }) {
			continue
		}
		if c := w.crowdLocked(append(slices.Clone(crowd), x), others[i+1:]); c != nil {
			return c
		}
	}
	return nil
}

// apart reports whether nobody has too much because of these two.
func (w *queues) apart(x, y *span) bool {
	shared := func(at string) bool { return slices.Contains(y.paths, at) }
	return x.caller == y.caller || w.over(x, y.begin) || w.over(y, x.begin) || !slices.ContainsFunc(x.paths, shared)
}

// over reports whether it has ended, in each order, before what comes with a step.
func (w *queues) over(x *span, step int) bool {
	return x.end >= 0 && (x.end == step || w.before(x.end, step))
}

// judgeCallLocked judges a call as it stands.
func (w *queues) judgeCallLocked(c *caller) {
	limit := w.scope.MaxWait
	switch {
	case c.state == waiting && c.ended:
		w.blameLocked("context", "%s waits, although its context has ended", c.name)
	case c.state == waiting && limit > 0 && time.Since(c.since) > limit:
		w.blameLocked("context", "%s waits for longer than %v", c.name, limit)
	case c.err == nil, c.ended && errors.Is(c.err, context.Canceled), limit > 0 && errors.Is(c.err, tier.ErrWaitLimit):
	case c.call == Try && (errors.Is(c.err, tier.ErrLocked) || errors.Is(c.err, context.DeadlineExceeded)): // or it was not answered
	case c.closing && errors.Is(c.err, tier.ErrClosed), c.disturbed && (c.call == Try || errors.Is(c.err, tier.ErrLost)):
	default:
		w.blameLocked("fails", "%s: %v", c.name, c.err)
	}
}

// judgeStoreLocked judges whom the store has given a lock with the last step: whoever had it knows of its loss.
func (w *queues) judgeStoreLocked(at string) {
	read := true
	for i, q := range w.server.Queue(at) {
		if !w.known[q.ID] {
			w.known[q.ID] = true
			if p := w.named(q.Label); !slices.Contains(w.entered, p) {
				w.entered = append(w.entered, p)
			}
		}
		weight := whole
		if read = read && q.Shared; q.Shared {
			weight = 1
		} else if q.Of > 0 {
			weight = q.Permits * whole / q.Of
		}
		if (i == 0 || read || q.Of > 0) && weight > 0 && !w.had[q.ID] {
			w.had[q.ID] = true
			w.judgeGivenLocked(at, weight, q)
		}
	}
}

func (w *queues) judgeGivenLocked(at string, weight int, q second.Contender) {
	for _, x := range w.spans {
		if x.process.name != q.Label && x.weight+weight > whole && slices.Contains(x.paths, at) && !w.over(x, w.step) {
			w.blameLocked("known", "the store gives to %s what %s has, and does not know to be lost", q.Label, x.name)
		}
	}
}
