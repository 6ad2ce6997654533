package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// blameLocked records the first violation, and ignores later ones.
func (w *queues) blameLocked(judge, format string, args ...any) {
	if w.wrong == nil && judge != w.scope.ignore {
		w.wrong = fmt.Errorf(judge+": "+format, args...)
	}
}

// judge checks what the last step has changed. The search executes only one order of independent steps. Two holds may follow each other in
// this order and overlap in another one. Therefore one hold has to end before the next one begins in every order of independent steps.
func (w *queues) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, frames := w.store.(*ensemble); frames {
		w.judgeNodesLocked(e)
	}
	for _, x := range w.spans {
		w.judgeLeaseLocked(x)
		w.judgeWorkLocked(x)
		if x.end < 0 && x.hold.Err() != nil {
			x.end = w.step
		}
	}
	for _, x := range w.writes {
		if w.guardsLocked(x) {
			w.judgeWriteLocked(x)
		}
	}
	w.judgeLogLocked()
	w.judgeLongLocked()
	if w.step > mostSteps && !w.scope.Long {
		w.blameLocked("waits", "the execution has not ended after %d steps", mostSteps)
	}
	if !w.done() && w.quiet >= patience && !w.ails() { // a lasting fault may end the wait in a later step
		w.blameLocked("waits", "a caller waits without end")
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
			w.judgeLookLocked(c)
			w.judgeShownLocked(c)
			w.judgeOpenLocked(c)
			w.judgeLossLocked(c)
			queues = queues || c.state == waiting
		}
		w.noteContendedLocked(p)
		w.judgePermitsLocked(p)
		w.judgeFiguresLocked(p)
		if !queues {
			p.unwanted = w.step
			w.entered = slices.DeleteFunc(w.entered, func(x *process) bool { return x == p })
		}
	}
}

// grantedLocked checks a grant at the moment when the caller gets it.
func (w *queues) grantedLocked(c *caller) {
	w.judgeSourceLocked(c)
	for _, x := range c.has {
		x.begin, x.end, x.turn = -1, -1, c.left
		if h, ok := x.hold.(interface {
			Context(context.Context) context.Context
		}); ok {
			x.work = h.Context(context.Background())
		}
		if w.scope.seed.loose {
			x.work = context.WithoutCancel(x.work)
		}
		// With Seam, a loss is reported at once.
		known := w.scope.Seam && c.after > c.lossAfter || c.certain && w.step > c.lossAfter
		if err := x.hold.Err(); err != nil && (!c.disturbed || known) && !w.draining {
			w.blameLocked("lost", "%s gets a lost lock: %v", c.name, err)
		}
		w.spans = append(w.spans, x)
	}
}

// judgeLeaseLocked checks that a caller does not rely on a hold whose lease has ended.
func (w *queues) judgeLeaseLocked(x *span) {
	memory, ok := w.store.(*scripted)
	if !ok || x.hold.Err() != nil {
		return
	}
	if now, end := memory.now(x.process), time.Duration(x.leased.Load()); now >= end {
		w.blameLocked("lost", "%s believes to have it %v after the end of its lease", x.name, now-end)
	}
}

// judgeLook makes a process whose lease is over check its clock. If a lost hold then returns a context for work, that context must have
// ended already.
func (w *queues) judgeLook(p *process) {
	for _, x := range w.spans {
		hold, ok := x.hold.(*tier.Hold)
		goesOn := ok && x.process == p && hold.Context(context.Background()).Err() == nil
		if x.hold.Err() != nil && goesOn {
			w.blameLocked("context", "%s is given one for work that goes on, after the end of its lease", x.name)
		}
	}
}

// judgeGrantLocked checks a hold that has just begun.
func (w *queues) judgeGrantLocked(x *span) {
	x.begin = w.step
	weight := func(y *span) int64 { return int64(y.weight) }
	if crowd := oracle.Crowd(whole, x, w.spans, weight, w.apart); crowd != nil {
		w.blameLocked("exclusion", "I1: %s has it beside %s", x.name, crowd[1].name)
	}
	var before oracle.Tokens
	for _, y := range w.spans {
		if y.end >= 0 && x.paths[0] == y.paths[0] {
			before = before.With(w.mark(y), y.weight >= whole)
		}
	}
	// A taken lock has weight 0, and its token shows that.
	if err := before.Judge(w.mark(x), x.weight >= whole); err != nil && x.weight > 0 {
		w.blameLocked("tokens", "%s: %v", x.name, err)
	}
	var here, there []oracle.Waiter
	for _, c := range x.process.callers {
		if c.state == waiting {
			here = append(here, c.waiter())
		}
	}
	for i, p := range w.entered {
		there = append(there, oracle.Waiter{Name: p.name, Came: int64(i)})
	}
	err := oracle.Served(x.waiter(), here)
	i := slices.Index(w.entered, x.process)
	if others := func(c Call) bool { return c != Lock && c != Nested && c != Outer }; err == nil && !w.scope.any(others) {
		err = oracle.Served(oracle.Waiter{Name: x.name, Came: int64(i)}, there)
	}
	if err != nil {
		w.blameLocked("order", "%v", err)
	}
	if i >= 0 {
		w.entered = slices.Delete(w.entered, i, i+1)
	}
}

func (w *queues) mark(x *span) oracle.Mark {
	return oracle.Mark{Token: x.token, Process: int64(slices.Index(w.processes, x.process))}
}

func (c *caller) waiter() oracle.Waiter {
	return oracle.Waiter{Name: c.name, Queue: c.call.mutex(), Came: int64(c.after), Tries: c.call == Try}
}

// apart reports whether two holds respect the limit of the lock, because one ends before the other begins, or because both may hold it
// together.
func (w *queues) apart(x, y *span) bool {
	shared := func(at string) bool { return slices.Contains(y.paths, at) }
	return y.begin < 0 || x.caller == y.caller || w.over(x, y.begin) || w.over(y, x.begin) || !slices.ContainsFunc(x.paths, shared)
}

// over reports whether the hold x ends before the given step in every order of independent steps.
func (w *queues) over(x *span, step int) bool {
	return x.end >= 0 && (x.end == step || w.before(x.end, step))
}

// judgeCallLocked checks the present state of a call.
func (w *queues) judgeCallLocked(c *caller) {
	limit := w.scope.MaxWait
	switch {
	case c.state == waiting && c.ended && c.call != Both: // a call that takes both locks has to release the first one before it returns
		w.blameLocked("context", "%s waits, although its context has ended", c.name)
	case c.state == waiting && limit > 0 && time.Since(c.since) >= limit && c.call != Lead && c.call != Both && c.call != Try:
		w.blameLocked("context", "%s waits for longer than %v", c.name, limit)
	case c.err == nil, c.ended && errors.Is(c.err, context.Canceled), limit > 0 && errors.Is(c.err, tier.ErrWaitLimit):
	// TryAcquire ends with DeadlineExceeded if the store does not answer.
	case c.call == Try && (errors.Is(c.err, tier.ErrLocked) || errors.Is(c.err, context.DeadlineExceeded)):
	case c.closing && errors.Is(c.err, tier.ErrClosed), c.disturbed && errors.Is(c.err, tier.ErrLost):
	case (c.missed || c.late || c.disturbed) && c.call == Try:
	case w.refused && strings.HasSuffix(c.err.Error(), " refused"):
	case c.call == Wrong && errors.Is(c.err, errRefused):
	default:
		w.blameLocked("fails", "%s: %v", c.name, c.err)
	}
}

// judgeStoreLocked checks to which process the store has just given a lock. The previous holder must have learned of its loss before that.
func (w *queues) judgeStoreLocked(at string) {
	read := true
	queue := w.store.Queue(at)
	if e, frames := w.store.(*ensemble); frames {
		queue = slices.DeleteFunc(slices.Clone(queue), func(q second.Contender) bool { return e.ledger.isHalved(at, q.Token) })
	}
	for i, q := range queue {
		if at == path && i+1 < len(queue) {
			w.wanted[q.Token] = true
		}
		if !w.known[q.ID] {
			w.known[q.ID] = true
			w.judgeEntryLocked(queue[:i], q)
			if p := w.named(q.Label); !w.worn && w.isWantedLocked(p, q.ID) && !slices.Contains(w.entered, p) {
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

// judgeEntryLocked checks that a process does not queue behind a contender of its own. It checks nothing if a fault may have left that
// contender, or if a caller has given up, which may make a contender enter late.
func (w *queues) judgeEntryLocked(ahead []second.Contender, q second.Contender) {
	p := w.named(q.Label)
	if s := w.scope; s.Cancel || s.MaxWait > 0 || s.Lost || s.Late || s.Partly || w.stays || p.disturbed || p.closing {
		return
	}
	for _, y := range ahead {
		if slices.ContainsFunc(w.spans, func(x *span) bool { return x.process == p && x.token == y.Token && x.token != 0 }) {
			w.blameLocked("order", "%s queues behind what it has had itself", p.name)
		}
	}
}

// isWantedLocked reports whether a caller waits for a contender that has just entered. After a caller has given up, a contender may enter
// that no caller waits for. On ZooKeeper, its request may have waited in the connection before w.sent counts it as sent.
func (w *queues) isWantedLocked(p *process, id string) bool {
	sent, told := w.sent[id]
	inTime := func(c *caller) bool { return c.state == waiting && !c.alone }
	return !p.gaveUp || told && sent > p.unwanted && (!w.scope.ZooKeeper || slices.ContainsFunc(p.callers, inTime))
}

func (w *queues) judgeGivenLocked(at string, weight int, q second.Contender) {
	for _, x := range w.spans {
		if x.process.name != q.Label && !oracle.Room(whole).Fits(int64(x.weight+weight)) && slices.Contains(x.paths, at) && !w.over(x, w.step) {
			w.blameLocked("known", "the store gives to %s what %s has, and does not know to be lost", q.Label, x.name)
		}
	}
}

// toBeKept returns whether a release has to keep the lock in the process. It has to if a caller of this process waits, and no other process
// is known to have waited for the whole budget. With rounds, that caller must also have come before the grant. The release must not keep
// the lock if the holder knows that another process wants it. The result is nil if the release may do either.
func (w *queues) toBeKept(x *span) (keep *bool) {
	if w.stayedTooLong(x) {
		return new(bool)
	}
	hold, ok := x.hold.(*tier.Hold)
	if !ok || len(x.has) > 0 || !w.scope.oneMutex() || hold.Err() != nil || x.closing || x.tier.Err() != nil || x.wrote {
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
	asked := func(q second.Contender) bool { return q.Token == x.token && q.Asked }
	// A process looks for requests for the lock only after the lock has lingered. Before that, the release may do either.
	if w.scope.Linger > 0 && slices.ContainsFunc(w.store.Queue(path), asked) {
		return nil
	}
	came := slices.IndexFunc(w.spans, under)
	waited, known := waited(hold)
	*keep = w.scope.Rounds && first.after < w.spans[came].begin || !w.scope.Strict && (!known || waited < budget)
	return keep
}

// oneMutex reports whether all calls use the same mutex.
func (s Scope) oneMutex() bool {
	of := []Call{Lock, Try, Nested, Guarded, Yield}
	return !s.any(func(c Call) bool { return !slices.Contains(of, c) })
}

// waited returns for how long another process has waited for the lock, as far as the process with the hold knows.
func waited(hold *tier.Hold) (d time.Duration, known bool) {
	grant := waittest.Grant(hold)
	if x, ok := grant.(*place); ok {
		return time.Since(x.wanted), !x.wanted.IsZero()
	}
	known = grant.Contended().Raised()
	if known { // only then, because For may send a request to the store
		d = grant.Contended().For()
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

// If the last step was a release, judgeStayLocked checks whether the lock stayed in the process or left it, as it should.
func (w *queues) judgeStayLocked(c *caller) {
	if c.state == holding && w.scope.oneMutex() {
		w.judgeWantedLocked(c.has[0])
	}
	if c.keep == nil {
		return
	}
	last := func(x *span) bool {
		return x.begin == w.step && x.process == c.process && (x.source == tier.HandOff || x.call.permits() > 0)
	}
	if kept := slices.ContainsFunc(w.spans, last); kept != *c.keep {
		w.blameLocked("budget", "%s releases: handed on %t, want %t", c.name, kept, *c.keep)
	}
	c.keep = nil
}

// judgeWantedLocked checks holders that have learned of a waiting process: another process must really have waited. The function checks
// nothing if a process closes, because a contender of that process may enter and leave the queue within one step.
func (w *queues) judgeWantedLocked(x *span) {
	if w.worn || slices.ContainsFunc(w.processes, func(p *process) bool { return p.closing }) { // worn: the path is deleted and created again
		return
	}
	if hold, ok := x.hold.(*tier.Hold); ok && waittest.Grant(hold).Contended().Raised() && !w.wanted[x.token] {
		w.blameLocked("budget", "%s learns of a waiting process, and no process waits", x.name)
	}
}

// A holder that could keep the lock for its own process has to know of waiting processes. judgeLookLocked checks that. For a writer that
// has become a reader, it also checks that waiting readers get the lock after the budget. If a goroutine of the holder's process waits at
// that time, they may wait for the budget once more.
func (w *queues) judgeLookLocked(c *caller) {
	if c.state != holding || w.scope.Strict {
		return
	}
	hold, ok := c.has[0].hold.(*tier.Hold)
	if !ok {
		return
	}
	x, ok := waittest.Grant(hold).(*place)
	if !ok || hold.Err() != nil {
		return
	}
	here := slices.ContainsFunc(c.callers, func(y *caller) bool {
		return y.state == waiting && y.call != Try && y.call.mutex() == c.call.mutex()
	})
	if here {
		x.local = time.Now()
	}
	if w.anyUnderWayLocked(c.process) {
		return
	}
	reads := len(c.has) == 1 && hold.Shared() && !x.Shared()
	if s := w.store.(*seam); x.wanted.IsZero() && (here || reads) && x == s.places[x.path][0] && s.behindLocked(x.path, 0) {
		w.blameLocked("budget", "%s does not know of a waiting process, and does not look for one", c.name)
	} else if !x.wanted.IsZero() && reads && min(time.Since(x.wanted), time.Since(x.local)) >= budget && !x.sharing && !x.Contender.Shared {
		w.blameLocked("budget", "%s reads alone, although another reader has waited for %v", c.name, time.Since(x.wanted))
	}
}

// anyUnderWayLocked reports whether a message from or to a process is under way.
func (w *queues) anyUnderWayLocked(p *process) bool {
	return slices.ContainsFunc(w.pending, func(m *message) bool { return m.process == p })
}

// guardsLocked reports whether the store accepts a write that is guarded by the lock of a span.
func (w *queues) guardsLocked(x *span) bool {
	head := w.store.Queue(path)
	return len(head) > 0 && head[0].Token == x.token
}

// judgeWriteLocked checks a guarded write that takes effect now, or that could take effect now.
func (w *queues) judgeWriteLocked(x *span) {
	var later []oracle.Mark
	for _, y := range w.spans {
		if y != x && y.paths[0] == x.paths[0] && (y.begin > x.begin || y.begin < 0) {
			later = append(later, w.mark(y))
		}
	}
	if err := oracle.Wrote(w.mark(x), later); err != nil {
		w.blameLocked("writes", "%s: %v", x.name, err)
	}
}

// judgeLossLocked checks that a loss is reported as soon as it is known.
func (w *queues) judgeLossLocked(c *caller) {
	if c.state != holding || c.closing || c.call == Both || c.call == Lead {
		return
	}
	told := slices.ContainsFunc(c.events, func(event string) bool { return strings.HasPrefix(event, "lost") })
	if err := c.has[0].hold.Err(); errors.Is(err, tier.ErrLost) != told {
		w.blameLocked("told", "%s got the events %q, and Err of its hold is %v", c.name, c.events, err)
	}
}

// judgeWorkLocked checks the context for work under a hold. It has to end when the hold ends, and with the same reason.
func (w *queues) judgeWorkLocked(x *span) {
	if x.work == nil {
		return
	}
	ended, err, cause := x.work.Err() != nil, x.hold.Err(), context.Cause(x.work)
	switch {
	case ended != (err != nil):
		w.blameLocked("context", "the one for work of %s has ended: %t, and what it is for: %v", x.name, ended, err)
	case !ended:
		return
	case !errors.Is(cause, tier.ErrLost) && (!errors.Is(cause, tier.ErrReleased) || !errors.Is(err, tier.ErrReleased)):
		w.blameLocked("context", "the one for work of %s has ended because of %v, and what it is for: %v", x.name, cause, err)
	}
	x.work = nil
}

// judgeOpenLocked checks that a writer lets readers in only while its process has the lock.
func (w *queues) judgeOpenLocked(c *caller) {
	if grant := c.opens.Load(); grant != nil && (*grant).Err() != nil {
		w.blameLocked("context", "%s goes on letting readers in, although %v", c.name, (*grant).Err())
	}
}

// judgeSourceLocked checks the source that a grant reports. If the process already had the lock, the source is not the store.
func (w *queues) judgeSourceLocked(c *caller) {
	had := slices.ContainsFunc(w.spans, func(x *span) bool {
		return x.begin >= 0 && x.process == c.process && x.token != 0 && x.token == c.has[0].token && x.paths[0] == c.has[0].paths[0]
	})
	if had && (c.source == tier.Found || c.source == tier.HandOver) && c.call != Both {
		w.blameLocked("told", "%s gets the source %s for a lock that its process already had", c.name, c.source)
	}
}

// judgeLateCalls makes calls during a shutdown. They have to fail at once, and without an event for observers.
func (w *queues) judgeLateCalls(p *process) {
	c := &caller{process: p, world: w, name: p.name + " late", call: Try, since: time.Now()}
	ctx := context.WithValue(context.Background(), calledBy{}, c)
	ended := make(chan error, 3)
	go func() {
		_, acquired := p.registry.Mutex(path).Acquire(ctx)
		_, tried := p.registry.Mutex(path).TryAcquire(ctx)
		_, permitted := p.registry.Semaphore(path, w.scope.permits()).Acquire(ctx, 1)
		ended <- acquired
		ended <- tried
		ended <- permitted
	}()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for range cap(ended) {
		select {
		case err := <-ended:
			if !errors.Is(err, tier.ErrClosed) || len(c.events) > 0 {
				w.blameLocked("told", "%s, which begins in a shutdown, ends with %v and the events %s", c.name, err, c.events)
			}
		default:
			w.blameLocked("context", "%s waits in a shutdown", c.name)
		}
	}
}

// judgeFailureLocked checks the error and the events of a failed call.
func (w *queues) judgeFailureLocked(c *caller, entered bool) {
	w.judgeWordsLocked(c)
	alone := w.scope.Processes == 1 && len(c.callers) == 1
	if alone && errors.Is(c.err, tier.ErrLocked) && !errors.As(c.err, new(*tier.GracePeriodError)) {
		w.blameLocked("words", "%s gets no error of the grace period: %v", c.name, c.err)
	}
	answered := !c.ended && !c.missed && !w.losses
	if c.closing && c.call == Try && answered && !errors.Is(c.err, tier.ErrClosed) && !errors.Is(c.err, tier.ErrLocked) {
		w.blameLocked("fails", "%s, of a process that closes: %v", c.name, c.err)
	}
	want := "[failed]"
	switch {
	// In these cases the call may have acquired a lock before it failed.
	case w.draining, c.call == Both, entered:
		return
	case c.call == Try, c.call == Wrong, errors.Is(c.err, tier.ErrClosed) && len(c.events) == 0:
		want = "[]"
	}
	if got := fmt.Sprint(c.events); got != want {
		w.blameLocked("told", "%s has failed with %v: got the events %s, want %s", c.name, c.err, got, want)
	}
	var e *tier.WaitError
	if !errors.As(c.err, &e) {
		return
	}
	// A caller of both locks may have one of them while it waits for the other. In the other two cases, several callers leave in the same
	// step.
	if w.scope.calls(Both) || c.spoilt || w.scope.Long && c.closing {
		return
	}
	locks, permits := w.hasLocked(c.process)
	if e.Permits == 0 {
		permits = 0
	}
	if waited := time.Since(c.since); e.Waited != waited || e.Permits == 0 && (e.Here != nil) != locks[c.call.mutex()] || e.Taken != permits {
		w.blameLocked("told", "%s after %v: %v and %d permits are here; got %v", c.name, waited, locks, permits, e)
	}
}

// judgeWordsLocked checks the error text of a failed call. It has to name the lock, the reason, and the holder.
func (w *queues) judgeWordsLocked(c *caller) {
	text := c.err.Error()
	has := func(part string) bool { return strings.Contains(text, part) }
	if !has(strings.TrimPrefix(c.call.mutex(), permitsOf)) && !(c.call == Both && has(other)) {
		w.blameLocked("words", "%s fails without its path: %q", c.name, text)
	}
	var e *tier.WaitError
	if !errors.As(c.err, &e) {
		return
	}
	wants := []string{" " + e.Path + ": waited ", ": " + e.Err.Error()}
	if n := c.call.permits(); n > 0 {
		wants = append(wants, " for "+permitsText(n)+":")
	} else if locks, _ := w.hasLocked(c.process); locks[e.Path] && !c.spoilt && !(w.scope.Long && c.closing) { // several leave
		wants = append(wants, "of this process has held the lock since ")
	} else if e.Position > 0 {
		wants = append(wants, e.Ahead.Label, map[bool]string{true: " has the lock", false: " ahead"}[e.AheadHolds])
	}
	if _, permits := w.hasLocked(c.process); permits > 0 && e.Permits > 0 && !c.spoilt && !(w.scope.Long && c.closing) {
		wants = append(wants, "this process has "+permitsText(permits))
	}
	for _, want := range wants {
		if !has(want) {
			w.blameLocked("words", "%s fails without %q: %q", c.name, want, text)
		}
	}
	if c.behind && e.Position == 0 {
		w.blameLocked("words", "%s gets no error that names the holder: %q", c.name, text)
	}
	nothing := errors.As(c.registry.Err(), new(*tier.GracePeriodError))
	if locks, _ := w.hasLocked(c.process); c.first && nothing && !locks[path] && e.GracePeriod == nil {
		w.blameLocked("words", "%s gets no error of the grace period: %q", c.name, text)
	}
	if e.First && !w.draining && !c.disturbed && !w.isFirstLocked(c.process) {
		w.blameLocked("words", "%s is not first in the queue: %q", c.name, text)
	}
	if strings.HasSuffix(text, "; ") || strings.HasSuffix(text, "1 permits") {
		w.blameLocked("words", "%s fails with %q", c.name, text)
	}
}

// standsLocked reports what a caller's process knows about the lock: behind says that another process has it, and first says that this
// process has it itself. Both are false while a message to the process is under way, and after a message was lost, because that message may
// contain the answer.
func (w *queues) standsLocked(c *caller) (behind, first bool) {
	if !w.scope.oneMutex() || w.scope.ZooKeeper || c.disturbed || c.process.missed || w.anyUnderWayLocked(c.process) {
		return false, false
	}
	there := w.store.Queue(path)
	own := slices.IndexFunc(there, func(q second.Contender) bool { return q.Label == c.process.name })
	return own > 0 && there[0].Label != c.process.name, own == 0
}

// isFirstLocked reports whether a process waits for permits with no other process ahead of it. It also returns true if the process was
// granted permits and may not know that yet.
func (w *queues) isFirstLocked(p *process) bool {
	others := false
	for _, q := range w.store.Queue(permitsOf + path) {
		if q.Label == p.name {
			return !others || q.Permits > 0
		}
		others = others || q.Permits == 0
	}
	return true
}

// judgeReleaseLocked checks which events were recorded for a hold that ends.
func (w *queues) judgeReleaseLocked(c *caller, err error) {
	if w.draining || c.call == Both || c.call == Lead || len(c.has) > 0 { // the release of an election's term is not reported
		return
	}
	want := "[acquired released]"
	if errors.Is(err, tier.ErrLost) {
		want = "[acquired lost " + string(second.CauseOf(err)) + " released, lost]"
	}
	if got := fmt.Sprint(c.events); got != want {
		w.blameLocked("told", "%s has released with %v: got the events %s, want %s", c.name, err, got, want)
	}
}

// judgeRest runs when all calls have ended. It checks what is left in the store and in the processes.
func (w *queues) judgeRest() {
	w.mu.Lock()
	for _, at := range queueAt {
		if left := w.store.Queue(at); len(left) > 0 {
			w.blameLocked("left", "%d are left in the queue", len(left))
		}
	}
	if e, frames := w.store.(*ensemble); frames {
		w.judgeEndLocked(e)
	}
	for _, p := range w.processes {
		// A caller that wants permits may have got the permits that other callers of its process left.
		permits := func(c *caller) bool { return c.call.permits() > 0 }
		if p.refused && !p.gaveUp && !slices.ContainsFunc(p.callers, permits) {
			w.blameLocked("fails", "none fails of %s, which was refused to enter", p.name)
		}
		// If the process is attached, the client library reports no change of the connection.
		if p.told.connection != tier.Connected && !p.closing && !w.scope.Attached {
			w.blameLocked("told", "%s has the connection state %q at the end, want connected", p.name, p.told.connection)
		}
	}
	w.mu.Unlock()
	for _, p := range w.processes {
		if c := p.callers[0]; w.scope.seed.keeps {
			c.since = time.Now()
			p.registry.Mutex("/kept").Acquire(context.WithValue(context.Background(), calledBy{}, c))
		}
		ctx, cancel := context.WithTimeout(context.Background(), lease)
		err := p.registry.Shutdown(ctx)
		cancel()
		w.mu.Lock()
		if s := p.registry.Stats(); err != nil || s.Holds+s.Lingering+s.Waiters+s.Permits+s.PermitWaiters > 0 {
			w.blameLocked("left", "%s has no end: %v, %+v", p.name, err, s)
		}
		w.mu.Unlock()
	}
}
