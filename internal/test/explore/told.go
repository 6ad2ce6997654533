package explore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// This file records what a process tells its program: events, the state of the connection, and statistics. The judges in it compare these
// with one another and with the holds of the callers.

// calledBy is the key of the context value that holds the caller of a call.
type calledBy struct{}

// observers returns two observers of a process. One sums up events; the other records the events of each caller's acquisitions.
func (w *queues) observers(p *process) []tier.Option {
	p.told.came = make(map[tier.Source]int64)
	note := func(ctx context.Context, event string, lost error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if errors.Is(lost, tier.ErrLost) {
			event += ", lost"
		}
		c := callerOf(ctx)
		c.events = append(c.events, event)
	}
	sums := tier.Observer{ // with two observers, because each event has to reach the one that handles it
		Acquired:   func(ctx context.Context, e tier.AcquiredEvent) { w.sumAcquired(callerOf(ctx), e) },
		Lost:       func(ctx context.Context, e tier.LostEvent) { note(ctx, "lost "+string(e.Cause), nil) },
		Released:   func(ctx context.Context, e tier.ReleasedEvent) { w.sumReleased(callerOf(ctx), e) },
		Connection: func(e tier.ConnectionEvent) { w.noteConnection(p, e) },
	}
	events := tier.Observer{
		Acquired: func(ctx context.Context, _ tier.AcquiredEvent) { note(ctx, "acquired", nil) },
		Failed: func(ctx context.Context, e tier.FailedEvent) {
			w.sumFailed(callerOf(ctx), e)
			note(ctx, "failed", nil)
		},
		Released: func(ctx context.Context, e tier.ReleasedEvent) { note(ctx, "released", e.Err) },
	}
	if w.scope.seed.silent {
		events.Released = nil
	}
	return []tier.Option{tier.WithObserver(sums), tier.WithObserver(events)}
}

func callerOf(ctx context.Context) *caller { return ctx.Value(calledBy{}).(*caller) }

// A figures value holds sums of the events that the observers of a process received. Holds that have not ended are left out.
type figures struct {
	came       map[tier.Source]int64 // acquisitions of locks, by source
	losses     int                   // lost locks
	waited     time.Duration         // total time of the waits for locks that are over
	held       time.Duration         // total time of the holds that are released
	connection tier.ConnectionState  // newest state; "" before the first report
	session    bool                  // a connection was reported, and its session has not been reported as expired
	away       time.Time             // when the connection ended; valid while there is no connection
}

func (f figures) turns() (n int64) {
	for _, k := range f.came {
		n += k
	}
	return n
}

func (w *queues) sumAcquired(c *caller, e tier.AcquiredEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeWaitedLocked(c, e.Waited)
	if c.source, c.got = e.From, e.At; e.Hold == nil {
		return
	}
	c.told.came[e.From]++
	if c.call != Try {
		c.told.waited += e.Waited
	}
}

func (w *queues) sumFailed(c *caller, e tier.FailedEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.judgeWaitedLocked(c, e.Waited); c.call.permits() == 0 {
		c.told.waited += e.Waited
	}
}

func (w *queues) judgeWaitedLocked(c *caller, told time.Duration) {
	if waited := time.Since(c.since); told != waited && c.call != Both && c.call != Lead {
		w.blameLocked("told", "%s has waited %v, and not %v", c.name, waited, told)
	}
}

func (w *queues) sumReleased(c *caller, e tier.ReleasedEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if held := e.At.Sub(c.got); e.Held != held && c.call != Both {
		w.blameLocked("told", "%s has held it for %v, and not %v", c.name, held, e.Held)
	}
	if errors.Is(e.Err, tier.ErrLost) && e.Hold != nil {
		c.told.losses++
	}
}

// noteConnection checks that each change of a connection is reported once, and that a session expires only after a connection.
func (w *queues) noteConnection(p *process, e tier.ConnectionEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := p.told.connection
	if e.State == was || e.State == tier.Expired && !p.told.session {
		w.blameLocked("told", "%s gets the state %s after the state %q", p.name, e.State, was)
	}
	_, memory := w.store.(*scripted)
	if away := time.Since(p.told.away); e.State == tier.Connected && was != "" && memory && e.Away != away {
		w.blameLocked("told", "%s was away for %v, and not %v", p.name, away, e.Away)
	}
	if was == tier.Connected || was == "" {
		p.told.away = time.Now()
	}
	p.told.connection = e.State
	p.told.session = e.State == tier.Connected || p.told.session && e.State != tier.Expired
}

// judgeNews checks a notification about permits: only a waiter gets a number of free permits, and a waiter has no permits.
func (w *queues) judgeNews(v queue.View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.Has && v.Free > 0 {
		w.blameLocked("told", "%s has its permits, and gets the number %d of free permits", v.ID, v.Free)
	}
	if n := v.Nearest; n.Permits > 0 {
		w.blameLocked("told", "%s gets a notification about %s, which waits and has %d permits", v.ID, n.ID, n.Permits)
	}
}

// hasLocked returns the locks that a process has, and the number of its permits.
func (w *queues) hasLocked(p *process) (locks map[string]bool, permits int) {
	locks = make(map[string]bool)
	for _, c := range p.callers {
		switch {
		case c.state != holding:
		case c.call.permits() > 0:
			permits += c.call.permits()
		default:
			locks[c.call.mutex()] = true
		}
	}
	return locks, permits
}

// lossesLocked returns the least and the greatest number of lost locks that a process may have counted. Every lost hold counts, before and
// after its release. A hold that is just being released may count or not.
func (p *process) lossesLocked() (least, most int) {
	least, most = p.told.losses, p.told.losses
	for _, c := range p.callers {
		switch {
		case c.call.permits() > 0:
		case c.state == releasing:
			most++
		case c.state == holding && errors.Is(c.has[0].hold.Err(), tier.ErrLost):
			least++
			most++
		}
	}
	return least, most
}

// judgeFiguresLocked checks the sums of the events of a process.
func (w *queues) judgeFiguresLocked(p *process) {
	if w.scope.calls(Both) { // a caller of both locks may have one of them while it waits for the other
		return
	}
	var want tier.Stats
	locks, permits := w.hasLocked(p)
	want.Holds, want.Permits = len(locks), permits
	for _, c := range p.callers {
		switch {
		case c.state != waiting || c.call == Try:
		case c.call.permits() > 0:
			want.PermitWaiters++
		default:
			want.Waiters++
		}
	}
	s, losses := p.registry.Stats(), 0
	for _, n := range s.Losses {
		losses += int(n)
	}
	least, most := p.lossesLocked()
	if s.Holds != want.Holds || s.Permits != want.Permits || s.Waiters != want.Waiters || s.PermitWaiters != want.PermitWaiters ||
		s.Acquisitions != p.told.turns() || losses < least || losses > most {
		w.blameLocked("told", "%s has the statistics %+v, want %+v and %+v", p.name, s, want, p.told)
	}
	w.judgeSumsLocked(p, s)
	w.judgeHeldLocked(p, s)
	w.judgeReachLocked(p)
	if !w.scope.Seam || !w.scope.oneMutex() { // elsewhere, the call of Contenders below would be a step of its own
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

// judgeReachLocked checks the error that a connected process reports about the store. There must be no error, with three exceptions: the
// process gets no notifications, the store grants nothing, or a request was not answered. An unanswered request leaves the process
// connected, because only an unanswered renewal changes the state of the connection.
func (w *queues) judgeReachLocked(p *process) {
	err := p.registry.Err()
	if w.scope.ZooKeeper || p.closing || p.told.connection != tier.Connected ||
		errors.As(err, new(*tier.GracePeriodError)) || errors.Is(err, tier.ErrUnavailable) {
		return
	}
	if (err != nil) != p.deaf {
		w.blameLocked("told", "%s is connected and reports %v; it gets no notifications: %t", p.name, err, p.deaf)
	}
}

// judgeSumsLocked compares the statistics of a process with the events that its observers received.
func (w *queues) judgeSumsLocked(p *process, s tier.Stats) {
	waited, held := p.told.waited, p.told.held
	for _, c := range p.callers {
		switch {
		case c.state == waiting && c.call != Try && c.call.permits() == 0:
			waited += time.Since(c.since)
		case c.state == holding:
			held += time.Since(c.got)
		}
	}
	elected := w.scope.calls(Lead) // a candidate that loses its lock waits again, without a new call
	came := p.told.came
	if came[tier.Found] != s.Found || came[tier.HandOver] != s.HandOvers || came[tier.HandOff] != s.HandOffs ||
		came[tier.Resumption] != s.Resumptions || came[tier.Join] != s.Joins {
		w.blameLocked("told", "%s has the statistics %+v, want %+v", p.name, s, p.told)
	}
	if !elected && s.WaitTime != waited || w.scope.oneMutex() && s.HoldTime != held {
		w.blameLocked("told", "%s has the statistics %+v, want %v of waits and %v of holds", p.name, s, waited, held)
	}
}

// judgeHeldLocked checks the list of the locks that a process holds.
func (w *queues) judgeHeldLocked(p *process, s tier.Stats) {
	holds, lingering := 0, 0
	for _, l := range p.registry.HeldLocks() {
		waiters := 0
		for _, c := range p.callers {
			if c.state == waiting && c.call != Try && c.call.mutex() == l.Path {
				waiters++
			}
		}
		if l.Waiters != waiters {
			w.blameLocked("told", "%s lists its lock as %+v, and %d goroutines wait for it", p.name, l, waiters)
		}
		if l.Lingering {
			if lingering++; time.Since(l.Since) >= w.scope.Linger {
				w.blameLocked("told", "%s keeps %+v for longer than %v", p.name, l, w.scope.Linger)
			}
			continue
		}
		holds++
		has := func(c *caller) bool {
			return c.state == holding && c.call.mutex() == l.Path && c.has[0].token == l.Token && !l.Since.After(c.got)
		}
		if !slices.ContainsFunc(p.callers, has) {
			w.blameLocked("told", "%s lists the lock %+v, which no caller has", p.name, l)
		}
	}
	if holds != s.Holds || lingering != s.Lingering {
		w.blameLocked("told", "%s has %d locks and keeps %d: %+v", p.name, holds, lingering, s)
	}
}
