package trace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// A history has all states in which one queue can be after the answers so far, and the commands that may still change it.
type history struct {
	checker *checker
	path    string
	states  []*state
	ops     []*op   // in the order in which they were sent
	tokens  []int64 // the tokens of all contenders that are known to enter, in ascending order
	begun   int
	top     int64 // the highest token that any process has learned
}

// An op is a command at one queue. The store executes it in one step, or does not execute it at all.
type op struct {
	Command
	history        *history
	process        string
	sent, answered clock.Instant
	answer         *Answer // nil: the command may be executed at any time, or never
	number         int     // the number of the command at its queue
	token          int64   // the token of the contender that enters, 0 if it is not known
	// This command has no answer, but another command with the same name was answered with the token: perhaps only the other one was
	// executed.
	repeated bool
	told     facts // what views mention about the contender that enters
	floor    int64 // the token of the contender is higher than this
	looks    []*op // for a renewal: a Look for each view in its answer
}

const (
	most    = 1 << 14 // the highest number of states that are looked at to explain one event
	surplus = 1 << 18 // number of states that may be looked at in all, in addition to eight for each event
)

// The method look splits a renewal into one Look for each view in its answer, so that each view is checked like the answer to a Look.
func (o *op) look() {
	if o.answer == nil || o.answer.Outcome != queue.Done {
		return
	}
	for _, v := range o.answer.Views {
		if i := slices.IndexFunc(o.Among, func(r Ref) bool { return r.ID == v.ID }); i >= 0 {
			o.looks = append(o.looks, &op{
				Command: Command{Op: queue.Look, Session: o.Session, Ref: o.Among[i]}, process: o.process,
				sent: o.sent, answered: o.answered, answer: &Answer{Outcome: queue.Done, View: v},
			})
		}
	}
}

func (o *op) enters() bool { return o.Op == queue.Enter || o.Op == queue.Try }

// open reports whether the outcome of the command is unknown.
func (o *op) open() bool { return o.answer == nil || o.answer.Outcome == queue.Unknown }

// begin records that a command was sent. From now on the store may execute it.
func (h *history) begin(o *op) {
	h.begun++
	o.number, o.floor, o.history = h.begun, h.top, h
	h.ops = append(h.ops, o)
}

// answer keeps those states in which the command can have been executed by now and can have this answer.
func (h *history) answer(o *op) error {
	if o.open() {
		return nil
	}
	err := h.explain(o, o.answered, func(s *state) *state {
		if slices.Contains(s.done, o.number) {
			return s
		}
		return s.execute(o, true)
	})
	if err != nil {
		return fmt.Errorf("%s: %s: %v; %w", h.path, o.Op, o.answer, err)
	}
	h.retire(func(p *op) bool { return p == o })
	return nil
}

// The method news keeps those states in which a view is true now or was true before.
func (h *history) news(v View, now clock.Instant) error {
	err := h.explain(&op{Command: Command{Op: queue.Look}}, now, func(s *state) *state {
		if v.Known && !s.met(v) && slices.ContainsFunc(h.ops, func(o *op) bool { return o.ID == v.ID && o.enters() }) {
			return nil // the contender has yet to enter
		}
		return s.hears(v)
	})
	if err != nil {
		return fmt.Errorf("%s: news: %v; %w", h.path, v, err)
	}
	return nil
}

// explain follows each state through all steps that may have happened by now, until the function end returns a state. It keeps the
// states that end has returned. about is the command whose answer has to be explained. A step that may as well happen later is left for
// later.
func (h *history) explain(about *op, now clock.Instant, end func(*state) *state) error {
	var found []*state
	looks := !h.checker.rules.Unordered && (about.Op == queue.Look || about.Op == queue.Enter && about.Old == nil)
	known, later := map[string]bool{}, map[string]bool{}
	for _, s := range h.states {
		h.pass(s)
	}
	for level := h.states; len(level) > 0; {
		var next []*state
		for _, s := range level {
			if h.checker.looked > h.checker.patience {
				h.checker.cut = true
				return h
			}
			done := end(s)
			if done != nil {
				if key := done.key(); !later[key] {
					later[key] = true
					found = append(found, done)
				}
				for _, l := range h.steps(done, now) {
					later[l.key()] = true
				}
			}
			for _, n := range h.steps(s, now) {
				if done != nil && looks && len(n.queue) <= len(s.queue) {
					// The step may as well happen later. It matters now only if it lets a contender enter, because it then decides the
					// contender's place.
					continue
				}
				if key := n.key(); !known[key] {
					known[key] = true
					next = append(next, n)
				}
			}
		}
		if len(known) > most || len(known) > h.checker.enough && len(found) > 0 {
			h.checker.cut = true
			break
		}
		level = next
	}
	if len(found) == 0 {
		return h
	}
	h.states = found
	for _, s := range h.states {
		s.gone = slices.DeleteFunc(s.gone, func(p place) bool { return now > h.checker.contenders[p.ID].of(p.Token).mentioned })
	}
	// A command that can only create a contender whose lease has ended, and which no process has seen, is dropped.
	h.retire(func(o *op) bool {
		return o.open() && o.ID != "" && now > max(h.checker.contenders[o.ID].mentioned, h.checker.past(o)) &&
			!slices.ContainsFunc(h.states, func(s *state) bool { return s.find(Ref{ID: o.ID}) >= 0 })
	})
	return nil
}

// The method steps returns all states that one step leads to. A step is a command, the end of a lease, or a loss of data.
func (h *history) steps(s *state, now clock.Instant) (states []*state) {
	forgets := h.checker.forgets(now)
	for _, o := range h.ops {
		if slices.Contains(s.done, o.number) || o.open() && o.Op == queue.Leave && h.stays(s, o.Ref, now) {
			continue
		}
		if next := s.execute(o, false); next != nil {
			states = append(states, next)
		}
	}
	for i, p := range s.queue {
		known := h.checker.contenders[p.ID]
		ends := now >= h.checker.until(known) || h.checker.rules.Brittle
		if forgets || ends && now >= known.of(p.Token).alive {
			next := s.clone()
			next.queue[i].once = p.once && !forgets
			if next.remove(i) != nil {
				states = append(states, next)
			}
		}
	}
	for i, p := range s.gone {
		if forgets && s.find(Ref{ID: p.ID}) < 0 {
			next := s.clone()
			next.gone = slices.Delete(next.gone, i, i+1)
			at, _ := slices.BinarySearchFunc(next.queue, p.Token, func(q place, token int64) int { return cmp.Compare(q.Token, token) })
			next.queue = slices.Insert(next.queue, at, p)
			next.settle()
			states = append(states, next)
		}
	}
	h.checker.looked += 1 + len(states)
	for _, n := range states {
		h.pass(n)
	}
	return states
}

// The method stays reports whether an unanswered removal of a contender certainly had no effect yet: the contender is not there, or the
// trace shows it later.
func (h *history) stays(s *state, r Ref, now clock.Instant) bool {
	i := s.find(r)
	if i < 0 || s.queue[i].Token == 0 {
		return i < 0
	}
	p := s.queue[i]
	return now < h.checker.contenders[p.ID].of(p.Token).alive
}

// next returns the lowest known token above top. It is the token of the contender that enters next.
func (h *history) next(top int64) int64 {
	i, _ := slices.BinarySearch(h.tokens, top+1)
	if i == len(h.tokens) {
		return math.MaxInt64
	}
	return h.tokens[i]
}

// The method pass marks commands as executed if they have no effect in this state. A later execution would explain nothing more.
func (h *history) pass(s *state) {
	for _, o := range h.ops {
		if s.unordered || o.open() || slices.Contains(s.done, o.number) || o.Op == queue.Leave && h.comes(s, o.ID) {
			continue
		}
		if n := s.execute(o, false); n != nil && slices.Equal(n.queue, s.queue) && len(n.gone) == len(s.gone) {
			s.done = append(s.done, o.number)
		}
	}
}

// The method comes reports whether a contender may still enter: a command that lets it enter was not executed yet.
func (h *history) comes(s *state, id string) bool {
	return slices.ContainsFunc(h.ops, func(o *op) bool {
		return o.enters() && o.ID == id && !slices.Contains(s.done, o.number) && (o.token == 0 || o.token > s.top)
	})
}

// retire drops the commands for which over returns true. They will not be executed any more.
func (h *history) retire(over func(*op) bool) {
	h.ops = slices.DeleteFunc(h.ops, func(o *op) bool {
		if !over(o) {
			return false
		}
		for _, s := range h.states {
			s.done = slices.DeleteFunc(s.done, func(n int) bool { return n == o.number })
		}
		return true
	})
}

// errUndecided is the error for a trace with so many possible orders that only some were tried.
var errUndecided = errors.New("undecided: too many orders are possible, and only some were tried")

// Error describes the possible states of the queue, and the commands that may change them.
func (h *history) Error() string {
	var queues, commands []string
	for _, s := range h.states {
		if q := s.String(); !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	for _, o := range h.ops {
		switch {
		case o.open():
			commands = append(commands, fmt.Sprintf("%s of %s, which has no answer", o.Op, o.ID))
		default:
			commands = append(commands, fmt.Sprintf("%s of %s (%v)", o.Op, o.ID, o.answer))
		}
	}
	return fmt.Sprintf("before that the queue was %s; under way: %s", some(queues, " or "), some(commands, ", "))
}

// some(all, between) joins the first few texts and says how many more there are.
func some(all []string, between string) string {
	const few = 8
	if len(all) > few {
		all = append(all[:few:few], fmt.Sprintf("%d more", len(all)-few))
	}
	return cmp.Or(strings.Join(all, between), "nothing")
}
