package explore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

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
		if r.Command.Op == queue.Open && r.Answer.Outcome == queue.Done {
			p.sessions.Add(1)
		}
	})
	return s.processes[p].Tier
}

func (s *scripted) open() {
	w := s.world
	s.Script(func(name string, c queue.Command) memory.Fault {
		if !explored(c.Op) {
			return memory.Fault{}
		}
		switch w.post(w.named(name), what(c), toStore) {
		case lose:
			return memory.Fault{Never: true}
		case refuse:
			return memory.Fault{Refused: queue.Denied}
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

// A log has the losses that are logged.
type log struct {
	slog.Handler
	world *queues
}

func (log) Enabled(context.Context, slog.Level) bool { return true }

func (l log) Handle(_ context.Context, r slog.Record) error {
	about := make(map[string]slog.Value)
	r.Attrs(func(a slog.Attr) bool {
		about[a.Key] = a.Value
		return true
	})
	switch text := strings.TrimPrefix(r.Message, "memory: "); text {
	case "connected", "new session", "connected again":
		l.world.noteSession(text, about["session"].String())
	case "the connection to memory is away", "still no connection to memory":
		l.world.noteAway(about["err"].Any())
	case "lock lost":
		cause, _ := about["cause"].Any().(error)
		if !l.world.scope.seed.quiet {
			l.world.noteLogged(about["path"].String(), about["token"].Int64(), cause)
		}
	}
	return nil
}
