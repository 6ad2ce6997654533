package explore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// A scripted store is the store in memory. Each command is executed in a step of its own. Each answer and each notification arrives in a
// step of its own. Commands about sessions take no step.
type scripted struct {
	*memory.Server
	world     *queues
	processes map[*process]*memory.Process
}

func newScripted(w *queues) *scripted {
	s := &scripted{memory.NewServer(), w, make(map[*process]*memory.Process)}
	s.Logger = slog.New(log{slog.DiscardHandler, w})
	s.Script(s.decide)
	s.As = func(_ *memory.Process, there queue.Store) queue.Store {
		if there = (orderly{there}); w.scope.seed.store != nil {
			there = w.scope.seed.store(there)
		}
		return there
	}
	return s
}

// An orderly store sorts the contenders in a command, because the order of a map changes from run to run. If a context has ended, it
// returns the error of the context and not its cause, as most clients do.
type orderly struct{ queue.Store }

func (o orderly) Do(ctx context.Context, c queue.Command) queue.Answer {
	c.Among = slices.SortedFunc(slices.Values(c.Among), func(a, b queue.Ref) int { return strings.Compare(a.ID, b.ID) })
	a := o.Store.Do(ctx, c)
	if a.Outcome == queue.Unknown && ctx.Err() != nil {
		a.Err = ctx.Err()
	}
	return a
}

func (s *scripted) dial(p *process) second.Tier {
	s.processes[p] = s.Dial(p.name, lease, func(r queue.Record) {
		if r.Answer.Outcome != queue.Done {
			return
		}
		if r.Command.Op == queue.Open {
			p.sessions.Add(1)
			p.ttl.Store(int64(r.Answer.TTL))
		}
		if r.Command.Op == queue.Open || r.Command.Op == queue.Beat && !s.world.isUnheard(p, r.Begun) {
			p.leased.Store(int64(r.Begun) + p.ttl.Load()*2/3)
		}
	})
	s.processes[p].Deliver(func(m queue.Record) bool { return s.deliver(p, m) })
	return s.processes[p].Tier
}

func (s *scripted) open() {} // nothing to do: there are no steps before the sessions exist

// decide makes a command wait for its step, if commands of this kind take a step.
func (s *scripted) decide(name string, c queue.Command) memory.Fault {
	p := s.world.named(name)
	verdict := pass
	switch {
	case c.Op == queue.Open && s.world.scope.Early:
		verdict = s.world.post(p, string(c.Op), both)
	case explored(c.Op):
		s.world.judgeMeeting(p, c)
		verdict = s.world.post(p, what(c), toStore)
	case c.Op == queue.Beat:
		verdict = s.world.renewal(p)
	}
	switch verdict {
	case lose:
		return memory.Fault{Never: true}
	case late:
		return memory.Fault{Before: aWhile, Lost: true}
	case refuse:
		return memory.Fault{Refused: queue.Denied}
	case partly:
		return memory.Fault{Refused: queue.Denied, Begun: true}
	}
	switch c.Op {
	case queue.Open:
		s.world.meet(p)
	case queue.Beat:
		s.world.show(p)
		return memory.Fault{After: s.world.scope.Slow}
	}
	return memory.Fault{}
}

// deliver makes an answer or a notification wait for its step, if messages of this kind take a step.
func (s *scripted) deliver(p *process, m queue.Record) (lost bool) {
	w := s.world
	if m.Command.Op != "" {
		return explored(m.Command.Op) && w.post(p, "answer to "+what(m.Command), toProcess) == lose
	}
	v := m.Answer.View
	news := fmt.Sprintf("news of %s: known %t, has %t, behind %t", v.ID, v.Known, v.Has, v.Behind)
	w.judgeNews(v)
	return w.scope.seed.mute || w.post(p, news, toProcess) == lose
}

// The method meet records that the store has received something from a process.
func (w *queues) meet(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.met = true
}

// judgeMeeting checks that a process sends no request before it has a session. There is one exception: if the store has not answered for as
// long as a request may take, the process may send requests that need no session.
func (w *queues) judgeMeeting(p *process, c queue.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.met && !w.draining && (c.Session != "" || p.registry.Err() == nil) {
		w.blameLocked("order", "%s sends %s, and has no session", p.name, c.Op)
	}
}

// The method show records that a renewal of a process finds a waiter behind its hold.
func (w *queues) show(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if there := w.store.Queue(path); len(there) > 1 && there[0].Label == p.name && w.shown[there[0].Token].IsZero() {
		w.shown[there[0].Token] = time.Now()
	}
}

// judgeShownLocked checks from when a holder counts the wait of another process. A renewal finds the waiter, and its answer may be late.
// The wait has to count at the latest from the moment when that renewal was sent. The function checks only scopes in which no waiter gives
// up.
func (w *queues) judgeShownLocked(c *caller) {
	if c.state != holding || w.scope.Slow == 0 || w.scope.Cancel || w.scope.Long {
		return
	}
	shown, hold := w.shown[c.has[0].token], c.has[0].hold
	if shown.IsZero() || time.Since(shown) <= w.scope.Slow || hold.Err() != nil {
		return
	}
	least := min(time.Since(shown), time.Since(c.got))
	if d, known := waited(hold.(*tier.Hold)); !known || d < least {
		w.blameLocked("budget", "%s knows of a wait of %v: %t, and a renewal has found one of %v", c.name, d, known, least)
	}
}

// explored reports whether the search tries commands of this kind in all orders. Commands about sessions are left out.
func explored(op queue.Op) bool {
	return op != queue.Open && op != queue.Beat && op != queue.Goodbye && op != queue.Audit && op != queue.Drop
}

func what(c queue.Command) string { return string(c.Op) + " " + c.ID }

func (s *scripted) cut(p *process) (heal func()) { return s.processes[p].Cut() }

// The method close waits for slow answers, but not for callers.
func (s *scripted) close() {
	time.Sleep(s.world.scope.Slow)
	synctest.Wait()
}

// scripted.now reads the clock that a process uses for its lease.
func (s *scripted) now(p *process) time.Duration { return s.processes[p].Now() }
