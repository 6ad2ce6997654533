package explore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
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
	s.As = func(_ *memory.Process, there queue.Store) queue.Store {
		if there = (orderly{there}); w.scope.seed.store != nil {
			there = w.scope.seed.store(there)
		}
		return there
	}
	return s
}

// An orderly store is told of several contenders in one order, that of a map being another one each time.
type orderly struct{ queue.Store }

func (o orderly) Do(ctx context.Context, c queue.Command) queue.Answer {
	c.Among = slices.SortedFunc(slices.Values(c.Among), func(a, b queue.Ref) int { return strings.Compare(a.ID, b.ID) })
	return o.Store.Do(ctx, c)
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
		if r.Command.Op == queue.Open || r.Command.Op == queue.Beat && !s.world.isUnheard(p) {
			p.leased.Store(int64(r.Begun) + p.ttl.Load()*2/3)
		}
	})
	return s.processes[p].Tier
}

func (s *scripted) open() {
	w := s.world
	s.Script(func(name string, c queue.Command) memory.Fault {
		p := w.named(name)
		verdict := pass
		if explored(c.Op) {
			verdict = w.post(p, what(c), toStore)
		} else if c.Op == queue.Beat {
			verdict = w.renewal(p)
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
		return memory.Fault{}
	})
	for p, there := range s.processes {
		there.Deliver(func(m queue.Record) bool {
			if m.Command.Op != "" {
				return explored(m.Command.Op) && w.post(p, "answer to "+what(m.Command), toProcess) == lose
			}
			v := m.Answer.View
			news := fmt.Sprintf("news of %s: known %t, has %t, behind %t", v.ID, v.Known, v.Has, v.Behind)
			w.judgeNews(v)
			return w.scope.seed.mute || w.post(p, news, toProcess) == lose
		})
	}
}

// explored reports whether the order of such commands matters here: sessions are another matter.
func explored(op queue.Op) bool {
	return op != queue.Open && op != queue.Beat && op != queue.Goodbye && op != queue.Audit && op != queue.Drop
}

func what(c queue.Command) string { return string(c.Op) + " " + c.ID }

func (s *scripted) cut(p *process) (heal func()) { return s.processes[p].Cut() }

func (s *scripted) close() {}

// now is the clock of the leases of a process.
func (s *scripted) now(p *process) time.Duration { return s.processes[p].Now() }
