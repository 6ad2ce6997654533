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

// A scripted store is the one in memory. A command is executed, and its answer and news arrive, in steps of their own; those of sessions
// at once.
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

// An orderly store is told of several contenders in one order, that of a map being another one each time. As most clients do, it says of a
// command that nobody waits for any more that the context has ended, and not why.
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

func (s *scripted) open() {} // nothing is explored before

// decide has a command wait for its step, or not.
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

// deliver has an answer or news wait for its step, or not.
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

// meet notes that the store hears of a process.
func (w *queues) meet(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.met = true
}

// judgeMeeting judges whether a process asks for something before it has met the store, which it does for a session. What needs none is
// sent all the same once the store has not answered for as long as that is worth.
func (w *queues) judgeMeeting(p *process, c queue.Command) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.met && !w.draining && (c.Session != "" || p.registry.Err() == nil) {
		w.blameLocked("order", "%s sends %s, and has no session", p.name, c.Op)
	}
}

// show notes that a renewal of a process finds somebody behind what that has.
func (w *queues) show(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if there := w.store.Queue(path); len(there) > 1 && there[0].Label == p.name && w.shown[there[0].Token].IsZero() {
		w.shown[there[0].Token] = time.Now()
	}
}

// judgeShownLocked judges since when somebody is said to wait: at the latest since the renewal was sent that has found him, however late
// its answer comes. Nobody who waits gives up here.
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

// explored reports whether the order of such commands matters here: sessions are another matter.
func explored(op queue.Op) bool {
	return op != queue.Open && op != queue.Beat && op != queue.Goodbye && op != queue.Audit && op != queue.Drop
}

func what(c queue.Command) string { return string(c.Op) + " " + c.ID }

func (s *scripted) cut(p *process) (heal func()) { return s.processes[p].Cut() }

// close waits for answers that are slow, and for nobody.
func (s *scripted) close() {
	time.Sleep(s.world.scope.Slow)
	synctest.Wait()
}

// now is the clock of the leases of a process.
func (s *scripted) now(p *process) time.Duration { return s.processes[p].Now() }
