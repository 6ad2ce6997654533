package trace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// A history is what passes at one queue: the states that it can be in, as far as those who asked can tell, and the commands that may
// change it yet.
type history struct {
	checker *checker
	path    string
	states  []*state
	ops     []*op // in the order in which they were sent
	begun   int
	top     int64 // the highest token that was told
}

// An op is a command at one queue, which is executed all at once, or not at all.
type op struct {
	Command
	process        string
	sent, answered clock.Instant
	answer         *Answer // nil: it may be executed at any time, or never
	number         int     // at its queue
	token          int64   // of the place of who enters, 0 if it is not known
	floor          int64   // it is higher than that
	looks          []*op   // of a renewal
}

// most is how many states are looked at for an explanation.
const most = 1 << 14

// look has a renewal look at each contender of which the answer tells.
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

// open reports whether it is not known what became of the command.
func (o *op) open() bool { return o.answer == nil || o.answer.Outcome == queue.Unknown }

// begin has a command be executed from now on, at whatever time.
func (h *history) begin(o *op) {
	h.begun++
	o.number, o.floor = h.begun, h.top
	h.ops = append(h.ops, o)
}

// answer finds the states after a command that was executed, with that answer, by now.
func (h *history) answer(o *op) error {
	if o.open() {
		return nil
	}
	err := h.explain(o.answered, func(s *state) *state {
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

// news finds the states in which something is so by now, or was.
func (h *history) news(v View, now clock.Instant) error {
	err := h.explain(now, func(s *state) *state {
		if v.Known && !s.met(v) && slices.ContainsFunc(h.ops, func(o *op) bool { return o.ID == v.ID && o.enters() }) {
			return nil // it is yet to enter
		}
		return s.hears(v)
	})
	if err != nil {
		return fmt.Errorf("%s: news: %v; %w", h.path, v, err)
	}
	return nil
}

// explain follows each state, through whatever else may have happened before, to where end does not return nil. What could as well
// happen afterwards is left for then.
func (h *history) explain(now clock.Instant, end func(*state) *state) error {
	var found []*state
	known, later := map[string]bool{}, map[string]bool{}
	for level := h.states; len(level) > 0; {
		var next []*state
		for _, s := range level {
			if done := end(s); done != nil {
				if key := done.key(); !later[key] {
					later[key] = true
					found = append(found, done)
				}
				for _, l := range h.steps(done, now) {
					later[l.key()] = true
				}
			}
			for _, n := range h.steps(s, now) {
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
		s.gone = slices.DeleteFunc(s.gone, func(p place) bool { return now > h.checker.contenders[p.ID].last(p.Token) })
	}
	h.retire(func(o *op) bool { // it could only bring somebody whom nobody has seen, and whose lease is over
		known := h.checker.contenders[o.ID]
		return o.open() && o.ID != "" && now > max(known.mentioned, h.checker.until(known)) &&
			!slices.ContainsFunc(h.states, func(s *state) bool { return s.find(Ref{ID: o.ID}) >= 0 })
	})
	return nil
}

// steps are the states that are one command, or one end of a lease, later.
func (h *history) steps(s *state, now clock.Instant) (states []*state) {
	for _, o := range h.ops {
		if next := s.execute(o, false); next != nil && !slices.Contains(s.done, o.number) {
			states = append(states, next)
		}
	}
	forgets := h.checker.forgets(now)
	for i, p := range s.queue {
		known := h.checker.contenders[p.ID]
		ends := now >= h.checker.until(known) || h.checker.rules.Brittle
		if forgets || ends && now >= known.alive {
			next := s.clone()
			next.remove(i)
			states = append(states, next)
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
	return states
}

// retire takes commands out that will not be executed any more.
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

// Error is what the queue can be, in words.
func (h *history) Error() string {
	var all []string
	for _, s := range h.states[:min(len(h.states), 4)] {
		all = append(all, s.String())
	}
	return fmt.Sprintf("the queue can be %s, and %d commands are under way", strings.Join(all, " or "), len(h.ops))
}
