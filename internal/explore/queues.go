package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

const (
	lease = 9 * time.Second
	path  = "/lock"
)

// A Scope is what processes do over the memory store.
type Scope struct {
	Processes  int
	Goroutines int // of each process
	Turns      int // of each goroutine; 0 is 1
	Options    []tier.Option

	// Faults that there can be.
	Lost   bool          // a request, an answer or news is lost
	Cancel bool          // a wait ends
	Expire bool          // a session ends
	Remove bool          // somebody removes a contender, and the judge does not know
	Clock  time.Duration // so much time passes
}

// A queues is the world of a scope: package tier, the queue and the memory store.
type queues struct {
	*testing.T
	scope     Scope
	server    *memory.Server
	processes []*process

	mu       sync.Mutex // guards the fields below
	pending  []*message
	count    map[string]int // of the names of messages
	draining bool
	wrong    error
	token    int64
	holder   *process
	history  []string // who had the lock
	idle     int      // looks at the clock since anything happened
}

type process struct {
	name      string
	tier      *memory.Process
	registry  *tier.Registry
	callers   []*caller
	disturbed bool // its session was ended, so it may lose what it has
}

// A caller is a goroutine that acquires and releases.
type caller struct {
	*process
	name   string
	left   int // turns
	state  state
	cancel context.CancelFunc
	hold   *tier.Hold
	err    error
}

type state int

const (
	idle state = iota
	waiting
	holding
	releasing
	over
)

// A message is a command on its way to the store, or an answer or news on its way back.
type message struct {
	name    string
	process *process
	request bool
	verdict chan verdict
}

type verdict int

const (
	pass verdict = iota
	lose
)

// Begin makes the world of a scope.
func (s Scope) Begin(t *testing.T) World {
	w := &queues{T: t, scope: s, server: memory.NewServer(), count: make(map[string]int)}
	for i := range s.Processes {
		p := &process{name: fmt.Sprintf("p%d", i+1)}
		p.tier = w.server.Dial(p.name, lease, nil)
		var err error
		if p.registry, err = tier.New(p.tier.Tier, s.Options...); err != nil {
			t.Fatal(err)
		}
		for j := range s.Goroutines {
			p.callers = append(p.callers, &caller{process: p, name: fmt.Sprintf("%s.g%d", p.name, j+1), left: max(1, s.Turns)})
		}
		w.processes = append(w.processes, p)
	}
	synctest.Wait() // until there are sessions
	w.server.Script(func(name string, c queue.Command) memory.Fault {
		if w.explored(c.Op) && w.post(w.named(name), string(c.Op), true) == lose {
			return memory.Fault{Never: true}
		}
		return memory.Fault{}
	})
	for _, p := range w.processes {
		p.tier.Deliver(func(m queue.Record) bool { return w.explored(m.Command.Op) && w.post(p, what(m), false) == lose })
	}
	return w
}

func (w *queues) named(name string) *process {
	return w.processes[slices.IndexFunc(w.processes, func(p *process) bool { return p.name == name })]
}

// explored reports whether the order of such commands matters here: sessions are another matter.
func (w *queues) explored(op queue.Op) bool {
	return op != queue.Open && op != queue.Beat && op != queue.Goodbye && op != queue.Audit && op != queue.Drop
}

func what(m queue.Record) string {
	if m.Command.Op != "" {
		return "answer to " + string(m.Command.Op)
	}
	v := m.Answer.View
	return fmt.Sprintf("news of %s: known %t, has %t, behind %t", v.ID, v.Known, v.Has, v.Behind)
}

// post has a message wait for what becomes of it.
func (w *queues) post(p *process, what string, request bool) verdict {
	w.mu.Lock()
	if w.draining {
		w.mu.Unlock()
		return pass
	}
	name := p.name + " " + what
	w.count[name]++
	m := &message{name: fmt.Sprintf("%s #%d", name, w.count[name]), process: p, request: request, verdict: make(chan verdict, 1)}
	w.pending = append(w.pending, m)
	w.mu.Unlock()
	return <-m.verdict
}

// settle decides what becomes of a message.
func (w *queues) settle(m *message, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(x *message) bool { return x == m })
	m.verdict <- v
}

// Steps has messages first, the oldest of them first, then what the callers do.
func (w *queues) Steps() (steps []Step) {
	w.judge()
	if w.wrong != nil {
		return nil
	}
	for _, m := range w.ordered() {
		steps = append(steps, Step{Name: m.step(), Touches: m.touches(), Take: func() { w.settle(m, pass) }})
	}
	for i, p := range w.processes {
		if i > 0 && w.processes[i-1].callers[0].state == idle { // processes are alike: they begin in one order
			break
		}
		for j, c := range p.callers {
			switch {
			case c.state == idle && (j == 0 || p.callers[j-1].state != idle):
				steps = append(steps, Step{Name: c.name + " begins", Touches: w.begins(i), Take: func() { w.begin(c) }})
			case c.state == holding:
				steps = append(steps, Step{Name: c.name + " releases", Touches: []string{p.name}, Take: func() { w.release(c) }})
			}
		}
	}
	busy := len(steps) > 0
	steps = append(steps, w.faults()...)
	if !busy && !w.done() && w.idle < 40 {
		steps = append([]Step{{Name: "time passes", Touches: []string{Everything}, Take: func() { w.idle++; time.Sleep(lease / 8) }}}, steps...)
	}
	return steps
}

// ordered are the messages under way, by name.
func (w *queues) ordered() []*message {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.pending)
	slices.SortStableFunc(list, func(a, b *message) int { return strings.Compare(a.name, b.name) })
	return list
}

func (m *message) step() string {
	if m.request {
		return m.name + " is executed"
	}
	return m.name + " arrives"
}

func (m *message) touches() []string {
	if m.request {
		return []string{"store", m.name}
	}
	return []string{m.process.name, m.name}
}

// begins is what the begin of a call touches: the first one of a process lets the next process begin.
func (w *queues) begins(i int) []string {
	touches := []string{w.processes[i].name}
	if i+1 < len(w.processes) {
		touches = append(touches, w.processes[i+1].name)
	}
	return touches
}

func (w *queues) faults() (steps []Step) {
	if w.scope.Lost {
		for _, m := range w.ordered() {
			steps = append(steps, Step{Name: m.name + " is lost", Fault: true, Touches: m.touches(), Take: func() { w.settle(m, lose) }})
		}
	}
	for _, p := range w.processes {
		for _, c := range p.callers {
			if w.scope.Cancel && c.state == waiting {
				steps = append(steps, Step{Name: c.name + " gives up", Fault: true, Touches: []string{p.name}, Take: c.cancel})
			}
		}
		if queue := w.server.Queue(path); w.scope.Expire {
			if i := slices.IndexFunc(queue, func(c second.Contender) bool { return c.Label == p.name }); i >= 0 {
				steps = append(steps, Step{Name: "the session of " + p.name + " ends", Fault: true, Touches: []string{"store", p.name}, Take: func() {
					p.disturbed = true
					w.server.Expire(path, i)
				}})
			}
		}
	}
	if queue := w.server.Queue(path); w.scope.Remove && len(queue) > 0 {
		steps = append(steps, Step{Name: "contender " + queue[0].ID + " is removed", Fault: true, Touches: []string{"store"}, Take: func() {
			w.server.Remove(path, 0)
		}})
	}
	if w.scope.Clock > 0 && !w.done() {
		steps = append(steps, Step{Name: fmt.Sprint(w.scope.Clock, " pass"), Fault: true, Touches: []string{Everything}, Take: func() { time.Sleep(w.scope.Clock) }})
	}
	return steps
}

func (w *queues) done() bool {
	for _, p := range w.processes {
		for _, c := range p.callers {
			if c.state != over {
				return false
			}
		}
	}
	return true
}

func (w *queues) begin(c *caller) {
	w.idle = 0
	ctx, cancel := context.WithCancel(context.Background())
	c.state, c.cancel = waiting, cancel
	go func() {
		hold, err := c.registry.Mutex(path).Acquire(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			c.state, c.err = over, err
			return
		}
		c.hold, c.state = hold, holding
		w.grantedLocked(c)
	}()
}

// grantedLocked judges a grant at the moment at which the caller has it.
func (w *queues) grantedLocked(c *caller) {
	w.history = append(w.history, c.name)
	if err := c.hold.Err(); err != nil && !c.disturbed {
		w.blameLocked("%s is given a lock that is lost: %v", c.name, err)
	}
	switch token := c.hold.Token(); {
	case token < w.token:
		w.blameLocked("%s has token %d after one of %d", c.name, token, w.token)
	case token == w.token && w.holder != c.process:
		w.blameLocked("%s has token %d, which %s had", c.name, token, w.holder.name)
	default:
		w.token, w.holder = token, c.process
	}
}

func (w *queues) release(c *caller) {
	w.idle = 0
	c.state = releasing
	go func() {
		err := c.hold.Release()
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil && !c.disturbed {
			w.blameLocked("%s releases a lock that is lost: %v", c.name, err)
		}
		c.state = idle
		if c.left--; c.left == 0 {
			c.state = over
		}
	}()
}

func (w *queues) blameLocked(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

// judge looks at who believes to have the lock.
func (w *queues) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var owners []string
	for _, p := range w.processes {
		for _, c := range p.callers {
			if c.state == holding && c.hold.Err() == nil {
				owners = append(owners, c.name)
			}
			if c.err != nil && !errors.Is(c.err, context.Canceled) {
				w.blameLocked("%s: %v", c.name, c.err)
			}
		}
	}
	if len(owners) > 1 {
		w.blameLocked("%q own the lock at once", owners)
	}
}

// end has a caller come to its end.
func (w *queues) end(c *caller) {
	w.mu.Lock()
	holds := c.state == holding
	if holds {
		c.state = over
	}
	w.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
	if holds {
		c.hold.Release()
	}
}

// End lets all that is under way come to its end.
func (w *queues) End() (outcome string, wrong error) {
	if w.wrong == nil && !w.done() && w.idle >= 40 {
		w.wrong = errors.New("somebody waits for ever")
	}
	w.mu.Lock()
	w.draining = true
	for _, m := range w.pending {
		m.verdict <- pass
	}
	w.pending = nil
	w.mu.Unlock()
	for range 2 * w.scope.Processes * w.scope.Goroutines {
		synctest.Wait()
		for _, p := range w.processes {
			for _, c := range p.callers {
				w.end(c)
			}
		}
	}
	if w.wrong == nil {
		time.Sleep(lease) // the audit has been
		synctest.Wait()
		if left := w.server.Queue(path); len(left) > 0 {
			w.wrong = fmt.Errorf("%d are left in the queue", len(left))
		}
	}
	for _, p := range w.processes {
		p.registry.Close()
	}
	return strings.Join(w.history, ", "), w.wrong
}
