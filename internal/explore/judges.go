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
			w.judgeStayLocked(c)
			queues = queues || c.state == waiting
		}
		w.judgeFiguresLocked(p)
		if !queues {
			p.unwanted = w.step
			w.entered = slices.DeleteFunc(w.entered, func(x *process) bool { return x == p })
		}
	}
}

// grantedLocked judges a grant at the moment at which the caller has it.
func (w *queues) grantedLocked(c *caller) {
	for _, x := range c.has {
		x.begin, x.end = -1, -1
		known := w.scope.Seam && c.after > c.lossAfter // at the seam a loss is told at once
		if err := x.hold.Err(); err != nil && (!c.disturbed || known) && !w.draining {
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
		if x.token == 0 || y.token == 0 || y.end < 0 || x.weight+y.weight <= whole || x.paths[0] != y.paths[0] {
			continue
		}
		if x.token < y.token || x.token == y.token && x.process != y.process {
			w.blameLocked("tokens", "%s has token %d, after %d of %s", x.name, x.token, y.token, y.name)
		}
	}
	for _, c := range x.process.callers {
		if c.state == waiting && c.after < x.after && c.call.mutex() == x.call.mutex() && c.call != Try && x.call != Try {
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
	case c.state == waiting && c.ended && c.call != Both: // which has to release first
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
	for i, q := range w.store.Queue(at) {
		if !w.known[q.ID] {
			w.known[q.ID] = true
			if p := w.named(q.Label); w.isWantedLocked(p, q.ID) && !slices.Contains(w.entered, p) {
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

// isWantedLocked reports whether somebody waits by a contender that has just entered: it may be that of one who has given up.
func (w *queues) isWantedLocked(p *process, id string) bool {
	sent, told := w.sent[id]
	return !p.gaveUp || told && sent > p.unwanted
}

func (w *queues) judgeGivenLocked(at string, weight int, q second.Contender) {
	for _, x := range w.spans {
		if x.process.name != q.Label && x.weight+weight > whole && slices.Contains(x.paths, at) && !w.over(x, w.step) {
			w.blameLocked("known", "the store gives to %s what %s has, and does not know to be lost", q.Label, x.name)
		}
	}
}

// toBeKept says whether a lock has to stay in the process at a release: it does if somebody waits here and no other process is known to
// have waited for the budget, or he came before the grant, by rounds; but not once its holder was told that it is wanted elsewhere.
func (w *queues) toBeKept(x *span) (keep *bool) {
	hold, ok := x.hold.(*tier.Hold)
	if !ok || len(x.has) > 0 || !w.scope.oneMutex() || hold.Err() != nil || x.closing || x.wrote {
		return nil
	}
	var first *caller
	for _, c := range x.process.callers {
		if c.state == waiting && c.call != Try && (first == nil || c.after < first.after) {
			first = c
		}
	}
	if first == nil {
		return nil
	}
	keep = new(bool)
	under := func(y *span) bool { return y.process == x.process && y.token == x.token }
	if slices.ContainsFunc(w.spans, func(y *span) bool { return under(y) && y.isTold() }) {
		return keep
	}
	came := slices.IndexFunc(w.spans, under)
	waited, known := waited(hold)
	*keep = w.scope.Rounds && first.after < w.spans[came].begin || !w.scope.Strict && (!known || waited < budget)
	return keep
}

// oneMutex reports whether all calls are of one mutex.
func (s Scope) oneMutex() bool {
	of := []Call{Lock, Try, Nested, Guarded, Yield}
	return !slices.ContainsFunc(s.Calls, func(c Call) bool { return !slices.Contains(of, c) })
}

// waited is for how long another process has waited, as far as is known to this one.
func waited(hold *tier.Hold) (d time.Duration, known bool) {
	grant := second.GrantOf(hold)
	if x, ok := grant.(*place); ok {
		return time.Since(x.wanted), !x.wanted.IsZero()
	}
	known = grant.Contested().Raised()
	if known { // else to ask would begin to look
		d = grant.Contested().For()
	}
	return d, known
}

func (x *span) isTold() bool {
	for _, told := range x.wanted {
		select {
		case <-told:
			return true
		default:
		}
	}
	return false
}

// judgeStayLocked judges what has become of the lock with the last step, if that was a release.
func (w *queues) judgeStayLocked(c *caller) {
	if c.keep == nil {
		return
	}
	last := func(x *span) bool { return x.begin == w.step && x.process == c.process && x.source == tier.HandOff }
	if kept := slices.ContainsFunc(w.spans, last); kept != *c.keep {
		w.blameLocked("budget", "%s releases: handed on %t, want %t", c.name, kept, *c.keep)
	}
	c.keep = nil
}

// judgeWriteLocked judges a write that takes effect.
func (w *queues) judgeWriteLocked(x *span) {
	for _, y := range w.spans {
		if y != x && y.process == x.process && y.token == x.token && (y.begin > x.begin || y.begin < 0) {
			w.blameLocked("writes", "what %s wrote takes effect in the turn of %s", x.name, y.name)
		}
	}
}

// calledBy is where the context of a call has its caller.
type calledBy struct{}

// observer notes what becomes of the turns of a caller.
func (w *queues) observer() (o tier.Observer) {
	note := func(ctx context.Context, event string, failed error) *caller {
		c := ctx.Value(calledBy{}).(*caller)
		if w.mu.Lock(); errors.Is(failed, tier.ErrLost) {
			event += ", lost"
		}
		c.events = append(c.events, event)
		return c
	}
	o.Acquired = func(ctx context.Context, e tier.AcquiredEvent) {
		c := note(ctx, "acquired", nil)
		defer w.mu.Unlock()
		if c.source = e.From; e.Hold != nil {
			c.turns++
		}
		if waited := time.Since(c.since); e.Waited != waited && c.call != Both {
			w.blameLocked("told", "%s has waited %v, and not %v", c.name, waited, e.Waited)
		}
	}
	o.Failed = func(ctx context.Context, e tier.FailedEvent) {
		note(ctx, "failed", nil)
		w.mu.Unlock()
	}
	o.Lost = func(ctx context.Context, e tier.LostEvent) {
		note(ctx, "lost", nil)
		w.mu.Unlock()
	}
	o.Released = func(ctx context.Context, e tier.ReleasedEvent) {
		c := note(ctx, "released", e.Err)
		defer w.mu.Unlock()
		if errors.Is(e.Err, tier.ErrLost) && e.Hold != nil {
			c.losses++
		}
	}
	if w.scope.seed.silent {
		o.Released = nil
	}
	return o
}

// judgeFailureLocked judges what is told of a call that has failed.
func (w *queues) judgeFailureLocked(c *caller, entered bool) {
	want := "[failed]"
	switch {
	case w.draining, c.call == Both, entered: // some of it was acquired
		return
	case c.call == Try, errors.Is(c.err, tier.ErrClosed) && len(c.events) == 0:
		want = "[]"
	}
	if got := fmt.Sprint(c.events); got != want {
		w.blameLocked("told", "%s has failed with %v: told %s, want %s", c.name, c.err, got, want)
	}
	var e *tier.WaitError
	if !errors.As(c.err, &e) {
		return
	}
	locks, permits := w.hasLocked(c.process)
	if waited := time.Since(c.since); e.Waited != waited || e.Permits == 0 && (e.Here != nil) != locks[c.call.mutex()] || e.Taken != permits {
		w.blameLocked("told", "%s after %v: %v and %d permits are here; got %v", c.name, waited, locks, permits, e)
	}
}

// judgeReleaseLocked judges what is told of a turn that ends.
func (w *queues) judgeReleaseLocked(c *caller, err error) {
	if w.draining || c.call == Both || c.call == Lead || len(c.has) > 0 { // a term does not say how it was released
		return
	}
	want := "[acquired released]"
	if errors.Is(err, tier.ErrLost) {
		want = "[acquired lost released, lost]"
	}
	if got := fmt.Sprint(c.events); got != want {
		w.blameLocked("told", "%s has released with %v: told %s, want %s", c.name, err, got, want)
	}
}

// hasLocked is which locks, and how many permits, a process has.
func (w *queues) hasLocked(p *process) (locks map[string]bool, permits int) {
	locks = make(map[string]bool)
	for _, c := range p.callers {
		switch {
		case c.state != holding:
		case c.call == One:
			permits++
		case c.call == Two:
			permits += 2
		default:
			locks[c.call.mutex()] = true
		}
	}
	return locks, permits
}

// judgeFiguresLocked judges the figures of a process.
func (w *queues) judgeFiguresLocked(p *process) {
	if slices.Contains(w.scope.Calls, Both) { // some have one lock, and wait for the other
		return
	}
	var want tier.Stats
	locks, permits := w.hasLocked(p)
	want.Holds, want.Permits = len(locks), permits
	for _, c := range p.callers {
		switch {
		case c.state != waiting || c.call == Try:
		case c.call == One || c.call == Two:
			want.PermitWaiters++
		default:
			want.Waiters++
		}
	}
	s, losses := p.registry.Stats(), 0
	for _, n := range s.Losses {
		losses += int(n)
	}
	if s.Holds != want.Holds || s.Permits != want.Permits || s.Waiters != want.Waiters || s.PermitWaiters != want.PermitWaiters ||
		s.Acquisitions != int64(p.turns) || losses != p.losses {
		w.blameLocked("told", "%s says of itself %+v, want %+v, %d turns and %d losses", p.name, s, want, p.turns, p.losses)
	}
	if !w.scope.Seam || !w.scope.oneMutex() { // to ask the store in memory is a step
		return
	}
	queue, err := p.registry.Mutex(path).Contenders(context.Background())
	for _, q := range queue {
		holds := slices.ContainsFunc(p.callers, func(c *caller) bool { return c.state == holding && c.has[0].token == q.Token })
		if err != nil || holds == q.HeldSince.IsZero() || holds && q.Lingering {
			w.blameLocked("told", "%s sees contender %+v, %v; it has the lock: %t", p.name, q, err, holds)
		}
	}
}
