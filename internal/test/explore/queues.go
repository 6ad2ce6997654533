package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

const (
	lease   = 9 * time.Second // the time for which the store keeps a session
	valid   = lease - lease/3 // the part of a lease for which a process believes in it
	aWhile  = 5 * time.Second // how long the store grants nothing, or a late command takes; no renewal is due at its end
	path    = "/lock"
	other   = "/other"
	third   = "/third"
	spelled = "/lock/AZaz09@%5B%60%7B%2F:%20größe%F0%9D%92%B3" // the path for a name that contains special characters

	permitsOf = "permits of " // prefix of the path of a semaphore

	budget = 20 * time.Millisecond // the hand-off budget
)

// A queues value is the world of a scope. It contains processes that use package tier, and the store that they share.
type queues struct {
	*testing.T
	scope     Scope
	store     store
	processes []*process
	options   []tier.Option       // options of each registry
	before    func(i, j int) bool // reports whether step i had to come before step j
	levels    []int               // by step; the level of a step is above the levels of all steps that it depends on
	quiet     int                 // how often time has passed since the last change
	passed    time.Duration       // time that passed although other steps were possible

	mu       sync.Mutex // guards the fields below
	step     int        // the newest step that was taken
	pending  []*message
	count    map[string]int // how often each name of a message was used
	draining bool
	cutOff   *process // the process whose messages are all lost; nil if there is none
	wrong    error
	spans    []*span
	entered  []*process     // processes in the queue that have waiting callers, in the order in which they entered
	sent     map[string]int // by contender: the step after which a message first named it
	known    map[string]bool
	had      map[string]bool     // contenders to which the store has given a lock
	shown    map[int64]time.Time // by token: when a renewal found a waiter behind its holder
	wanted   map[int64]bool      // by token: another contender has waited in the queue of the mutex
	worn     bool                // the numbers of nodes have reached the point at which they start again
	losses   bool                // there was a fault that may take locks away
	expired  bool                // a session was ended
	refused  bool                // the store has refused a command in a fault
	denied   bool                // such a command was not executed either
	stays    bool                // such a command would have removed a contender
	logged   []int64             // tokens of the locks whose losses were logged, in the order of the log lines
	writes   []*span             // guarded writes without an answer, which may take effect later
	longs    [2]int              // how many waits behind a hold of the same process were logged as long, and how many as endless
}

// A store is the common store of the processes.
type store interface {
	dial(*process) second.Tier
	open()                                // called when all processes have a session; from then on, each message waits for its step
	Queue(path string) []second.Contender // the contenders in the queue
	Expire(path string, i int)            // ends the session of the process at that place
	Remove(path string, i int)            // removes the contender at that place
	cut(*process) (heal func())           // loses the messages of the process, until its session ends
	close()
}

type process struct {
	name      string
	registry  *tier.Registry
	tier      second.Tier
	bridged   bool
	callers   []*caller
	sessions  atomic.Int32
	met       bool         // the in-memory store has received a request from this process
	leased    atomic.Int64 // the time on the lease clock at which its lease ends
	ttl       atomic.Int64 // the duration of its session, as the store reported it
	unheard   bool         // its renewals are lost if they are sent at unheardAt or later
	unheardAt time.Duration
	refusals  int       // how many of its next renewals will be refused
	deaf      bool      // it gets no notifications
	contended time.Time // since when it has known that another process waits for permits as well; zero if it does not know of one
	begun     bool
	closing   bool      // it is closing, so its messages may belong to the closing
	gaveUp    bool      // a caller has given up, so the process may have a contender without a caller
	refused   bool      // a request to enter the queue was refused
	missed    bool      // one of its messages was lost
	late      bool      // one of its messages waited while time passed
	owes      time.Time // until then, the store may count permits for the process that it does not have
	unwanted  int       // the last step after which no caller waited
	disturbed bool      // a fault may have taken its holds
	lossAfter int       // the step in which that fault happened
	certain   bool      // after lossAfter, it knows of all its losses
	told      figures
	logged    string    // the session in the newest log line about sessions
	returned  time.Time // when that line was logged
}

type state int

const (
	idle state = iota
	waiting
	holding
	releasing
	over
)

// A span is the time for which a caller believes that it has a lock. It begins after one step and ends after another.
type span struct {
	*caller
	paths      []string
	weight     int   // a hold of weight whole excludes all other holds
	begin, end int   // steps; -1: not yet
	token      int64 // 0: there is no token
	turn       int   // how many turns the caller had left when it got the lock
	wanted     []<-chan struct{}
	hold       interface {
		Err() error
		Release() error
	}
	work context.Context // the context for work under the hold; nil if there is none
}

const whole = 100

// A message is a command on its way to the store, or an answer or a notification on its way back.
type message struct {
	name    string
	process *process
	way     way
	since   int // the step after which it was sent
	verdict chan verdict
}

type way int

const (
	toStore way = iota
	toProcess
	both    // a request and its answer, which are one step in a scope with Seam
	inOrder // to a process, after all earlier messages of the connection
)

type verdict int

const (
	pass verdict = iota
	lose
	late
	refuse
	partly
	drop     // one frame is lost, and the connection stays
	throttle // the server refuses a frame because it is overloaded
	between  // a frame is lost between two servers
)

// Begin creates the world of a scope.
func (s Scope) Begin(t *testing.T) World {
	w := &queues{T: t, scope: s, step: -1, count: make(map[string]int),
		sent: make(map[string]int), known: make(map[string]bool), had: make(map[string]bool), wanted: make(map[int64]bool),
		shown: make(map[int64]time.Time)}
	switch {
	case s.Seam:
		w.store = newSeam(w)
	case s.ZooKeeper:
		w.store = newEnsemble(w)
	default:
		w.store = newScripted(w)
	}
	var options []tier.Option // of each registry
	if s.Strict {
		options = append(options, tier.WithStrictOrder())
	}
	if s.Rounds {
		options = append(options, tier.WithRounds())
	}
	if s.Traced {
		options = append(options, tier.WithLeakDetection())
	}
	if s.Clock > endless {
		patient.Store(w)
	}
	// All processes have to be in the list before the first one sends a message.
	for i := range s.Processes {
		w.processes = append(w.processes, &process{name: fmt.Sprintf("p%d", i+1), bridged: s.Bridged && i%2 == 0})
	}
	w.options = options
	for _, p := range w.processes {
		w.start(p)
	}
	synctest.Wait() // until all processes have a session
	w.store.open()
	return w
}

// The method start connects a process, and creates its callers.
func (w *queues) start(p *process) {
	p.tier = w.store.dial(p)
	p.registry = tier.New(p.tier, slices.Concat(w.options, w.observers(p))...)
	calls := w.scope.Calls
	if w.scope.Others != nil && p != w.processes[0] {
		calls = w.scope.Others
	}
	for j, call := range calls {
		name := fmt.Sprintf("%s.g%d", p.name, j+1)
		p.callers = append(p.callers, &caller{process: p, world: w, name: name, call: call, left: max(1, w.scope.Turns)})
	}
}

// restart closes a process and starts another process in its place.
func (w *queues) restart(p *process) {
	next := &process{name: fmt.Sprintf("p%d", len(w.processes)+1), bridged: p.bridged}
	w.processes = append(w.processes, next)
	e := w.store.(*ensemble)
	e.begin(next, false)
	w.start(next)
	e.begin(next, true)
	p.disturb()
	p.close()
	go p.registry.Close()
}

// spoilt returns steps in which two things happen at the same moment: a caller of a process releases, and the next waiter gives up. The
// release may choose that waiter before it knows that the waiter has given up.
func (w *queues) spoilt(p *process) (steps []Step) {
	for _, c := range p.callers {
		for _, next := range p.callers {
			if c.state != holding || next.state != waiting || next.ended || next.call.mutex() != c.call.mutex() {
				continue
			}
			spoil := Step{Name: c.name + " releases as " + next.name + " gives up", Fault: true, Touches: p.touches()}
			spoil.Take = func() {
				next.spoilt = true
				next.giveUp()
				c.release()
				c.keep = nil
			}
			steps = append(steps, spoil)
		}
	}
	return steps
}

func (w *queues) named(name string) *process {
	i := slices.IndexFunc(w.processes, func(p *process) bool { return p.name == name })
	if i < 0 {
		panic(fmt.Sprintf("no process is named %q", name))
	}
	return w.processes[i]
}

// The method post makes a message wait until a step decides what happens to it.
func (w *queues) post(p *process, what string, to way) verdict {
	w.mu.Lock()
	// A process that closes may send its last message before messages that it has begun to send.
	if w.draining || p.closing {
		w.mu.Unlock()
		return pass
	}
	if w.cutOff == p || p.deaf && strings.HasPrefix(what, "news ") {
		w.mu.Unlock()
		return lose
	}
	for _, word := range strings.Fields(what) {
		if _, known := w.sent[word]; !known {
			w.sent[word] = w.step
		}
	}
	name := p.name + " " + what
	if w.count[name]++; w.count[name] > 1 {
		name = fmt.Sprintf("%s #%d", name, w.count[name])
	}
	m := &message{name: name, process: p, way: to, since: w.step, verdict: make(chan verdict, 1)}
	w.pending = append(w.pending, m)
	w.mu.Unlock()
	return <-m.verdict
}

// The method settle decides what happens to a message.
func (w *queues) settle(m *message, v verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(x *message) bool { return x == m })
	w.refused, w.denied = w.refused || v == refuse || v == partly, w.denied || v == refuse
	// A request that is sent again may have been executed the first time.
	first, _, _ := strings.Cut(m.name, " #")
	m.process.refused = m.process.refused || v == refuse && strings.Contains(m.name, " enter ") && w.count[first] == 1
	// The store may have counted permits that no caller of the process wants any more.
	if v != pass && !strings.Contains(m.name, " weigh ") {
		m.process.owes = time.Now().Add(lease)
	}
	m.process.missed = m.process.missed || v == lose || v >= drop
	w.stays = w.stays || v == refuse && strings.Contains(m.name, " leave ")
	m.verdict <- v
}

// Steps returns the steps that are possible: first the messages, the oldest of them first, then the calls that can begin, and then the
// releases.
func (w *queues) Steps(before func(i, j int) bool) (steps []Step) {
	w.before = before
	w.raise()
	w.judge()
	if w.wrong != nil {
		return nil
	}
	for _, m := range w.ordered() {
		steps = append(steps, Step{Name: m.step(), Touches: m.touches(), Take: func() { w.settle(m, pass) }})
	}
	var releases []Step
	for i, p := range w.processes {
		for j, c := range p.callers {
			switch {
			case c.state == idle && w.mayBegin(i, j):
				steps = append(steps, Step{Name: c.name + " begins", Touches: w.begins(i), Take: c.begin})
			case c.state == holding:
				releases = append(releases, Step{Name: c.name + " releases", Touches: p.touches(), Take: c.release})
				if c.call == Guarded && !c.wrote {
					steps = append(steps, Step{Name: c.name + " writes", Touches: p.touches(), Take: c.write})
				}
			}
		}
	}
	steps = append(steps, releases...)
	busy := len(steps) > 0
	if e, frames := w.store.(*ensemble); frames {
		steps = append(steps, e.ends(busy)...)
	}
	if !busy && !w.done() && w.quiet < patience {
		steps = append(steps, Step{Name: "time passes", Touches: []string{Everything}, Take: w.wait})
	}
	steps = append(steps, w.faults()...)
	for i := range steps {
		take := steps[i].Take
		steps[i].Take = func() {
			w.mu.Lock()
			w.step++
			w.mu.Unlock()
			take()
		}
	}
	return steps
}

// A wait counts as endless if time has passed patience times without a change. An execution counts as endless if it has more than mostSteps
// steps.
const patience, mostSteps = 40, 500

// The method wait lets time pass until a step is possible. A schedule does not record how long that takes, because the intervals between
// retries are random.
func (w *queues) wait() {
	most := patience
	if w.ails() {
		most = min(most, w.quiet+8)
	}
	for before := w.callStates(); w.quiet < most; {
		w.quiet++
		time.Sleep(lease / 8)
		synctest.Wait()
		if len(w.ordered()) > 0 || w.callStates() != before {
			return
		}
	}
}

// ails reports whether a lasting fault is active.
func (w *queues) ails() bool {
	e, frames := w.store.(*ensemble)
	return frames && len(e.lasting) > 0
}

func (w *queues) callStates() (all string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		for _, c := range p.callers {
			all += fmt.Sprint(c.state)
		}
	}
	return all
}

// mayBegin reports whether a caller may begin. Callers that make the same calls are interchangeable, so they begin in one order only.
func (w *queues) mayBegin(i, j int) bool {
	p := w.processes[i]
	if p.closing || w.follows(i) && !w.processes[i-1].begun {
		return false
	}
	return j == 0 || p.callers[j].call != p.callers[j-1].call || p.callers[j-1].begun
}

// follows reports whether a process makes the same calls as the previous process.
func (w *queues) follows(i int) bool { return i > 1 || i == 1 && w.scope.Others == nil }

// ordered returns the messages under way, in an order that does not depend on the order of independent earlier steps.
func (w *queues) ordered() []*message {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Clone(w.pending)
	slices.SortFunc(list, func(a, b *message) int {
		return cmp.Or(cmp.Compare(w.level(a.since), w.level(b.since)), strings.Compare(a.name, b.name))
	})
	return list
}

// The method level returns the length of the longest chain of dependent steps up to the given step. Before the first step, the length is 0.
func (w *queues) level(step int) int {
	switch {
	case step < 0:
		return 0
	case step < len(w.levels):
		return w.levels[step]
	}
	return math.MaxInt // the step that is being taken has no level yet
}

// The method raise computes the level of the last step.
func (w *queues) raise() {
	for i := len(w.levels); i <= w.step; i++ {
		level := 1
		for j := i - 1; j >= level-1; j-- { // the level of step j is at most j+1
			if w.before(j, i) {
				level = max(level, w.levels[j]+1)
			}
		}
		w.levels = append(w.levels, level)
	}
}

func (m *message) step() string {
	if m.way == toProcess || m.way == inOrder {
		return m.name + " arrives"
	}
	return m.name + " is executed"
}

func (m *message) touches() []string {
	switch m.way {
	case toStore:
		return []string{"store", m.name}
	case both, inOrder: // the message may have been ready after any earlier step, and waited
		return []string{m.process.name, "store", m.name}
	}
	return append(m.process.touches(), m.name)
}

// touches returns the parts of the world that a step of a process reads or changes.
func (p *process) touches() []string {
	if p.closing {
		return []string{p.name, "store"}
	}
	return []string{p.name}
}

// The method begins returns the parts of the world that the beginning of a call touches. The first call of a process makes it possible for
// the next process to begin.
func (w *queues) begins(i int) []string {
	touches := w.processes[i].touches()
	if i+1 < len(w.processes) && w.follows(i+1) && !w.processes[i].begun {
		touches = append(touches, w.processes[i+1].name)
	}
	return touches
}

func (w *queues) faults() (steps []Step) {
	fault := func(name string, touches []string, take func()) {
		steps = append(steps, Step{Name: name, Fault: true, Touches: touches, Take: take})
	}
	e, frames := w.store.(*ensemble)
	if w.scope.Lost && !frames {
		for _, m := range w.ordered() {
			fault(m.name+" is lost", m.touches(), func() { w.settle(m, lose) })
		}
	}
	for _, m := range w.ordered() {
		if _, memory := w.store.(*scripted); !memory || m.way != toStore {
			continue
		}
		if w.scope.Refuse {
			fault(m.name+" is refused", m.touches(), func() { w.settle(m, refuse) })
		}
		if w.scope.Partly {
			fault(m.name+" is executed and refused", m.touches(), func() { w.settle(m, partly) })
		}
		if w.scope.Late {
			fault(m.name+" is late", m.touches(), func() { w.settle(m, late) })
		}
	}
	for _, p := range w.processes {
		both := []string{p.name, "store"}
		if w.scope.Lost && frames && p.begun && !p.done() {
			fault("the connection of "+p.name+" breaks", both, func() { e.Break(p) })
		}
		for _, c := range p.callers {
			if w.scope.Cancel && c.state == waiting && !c.ended {
				fault(c.name+" gives up", p.touches(), c.giveUp)
			}
		}
		if w.scope.Cancel && w.scope.Long {
			steps = append(steps, w.spoilt(p)...)
		}
		if w.scope.Restart && p.begun && !p.closing && !p.done() && !w.ails() {
			fault(p.name+" restarts", []string{Everything}, func() { w.restart(p) })
		}
		if at, i := w.placeOf(p); w.scope.Expire && i >= 0 && !w.ails() {
			fault("the session of "+p.name+" ends", both, func() {
				p.disturb()
				w.takesAway()
				w.mu.Lock()
				w.expired = true
				w.mu.Unlock()
				w.store.Expire(at, i)
			})
		}
		if w.scope.Close && p.begun && !p.closing && !p.done() {
			fault(p.name+" closes", both, func() {
				p.disturb()
				p.close()
				go p.registry.Close()
			})
		}
		if w.scope.Stop && p.begun && !p.closing && !p.done() {
			fault(p.name+" shuts down", both, func() {
				p.close()
				go p.registry.Shutdown(context.Background())
				synctest.Wait()
				w.judgeLateCalls(p)
			})
		}
		if w.scope.Cut && p.begun && !p.done() && !w.ails() {
			fault(p.name+" is cut off", []string{Everything}, func() { w.cut(p) })
		}
		if w.scope.Renew && p.begun && !p.done() && !p.closing && !w.asks(p) {
			fault("the lease of "+p.name+" ends", []string{Everything}, func() { w.unhear(p) })
			fault("two renewals of "+p.name+" are refused", []string{Everything}, func() { w.refuse(p) })
		}
	}
	if memory, ok := w.store.(*scripted); ok && w.scope.Anew && w.processes[0].begun && !w.done() {
		fault("the store grants nothing for a while", []string{Everything}, func() {
			memory.GracePeriod(aWhile)
		})
	}
	for _, p := range w.processes {
		if memory, ok := w.store.(*scripted); ok && w.scope.Deaf && p.begun && p.sessions.Load() > 0 && !p.done() && !p.closing {
			fault(p.name+" is told of nothing any more", []string{Everything}, func() {
				w.mu.Lock()
				p.deaf = true
				w.mu.Unlock()
				memory.processes[p].Deafen(errors.New("there are no news"))
			})
		}
	}
	if queue, i := w.store.Queue(path), w.scope.seed.remove-1; i >= 0 && i < len(queue) {
		fault("contender "+queue[i].ID+" is removed", []string{"store"}, func() { w.store.Remove(path, i) })
	}
	if w.scope.Remove {
		steps = append(steps, w.removals()...)
	}
	if frames {
		steps = append(steps, e.troubles()...)
	}
	if p := w.processes[0]; w.scope.Ask && p.begun && !w.done() && !p.closing {
		fault(p.name+" asks for it", p.touches(), func() { go p.registry.Mutex(path).Revoke(context.Background()) })
	}
	if w.scope.Clock > 0 && !w.done() {
		fault(fmt.Sprint(w.scope.Clock, " pass"), []string{Everything}, w.pass)
	}
	return steps
}

// The method pass lets time pass. In that time, a process may lose its lease if messages of the process wait now, if messages of it waited
// before, or if messages of it were lost.
func (w *queues) pass() {
	w.passed += w.scope.Clock
	for _, p := range w.processes {
		w.mu.Lock()
		ends := w.scope.Long && w.passed >= lease/9 && (p.missed || p.late || w.anyUnderWayLocked(p))
		if w.mu.Unlock(); ends {
			p.disturb()
			w.takesAway()
		}
	}
	time.Sleep(w.scope.Clock)
	if !w.scope.Long {
		return
	}
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		p.late = w.anyUnderWayLocked(p)
	}
}

// removals returns the steps in which an operator removes a contender. If the operator removes a holder, another process may get the lock
// before that holder learns of it; only tokens protect against that. Therefore a holder is removed only if it learns of that at once, or if
// no other process could get the lock. Readers share the lock on ZooKeeper, so a reader may always be removed there.
func (w *queues) removals() (steps []Step) {
	for _, at := range queueAt {
		for i, q := range w.store.Queue(at) {
			if p := w.named(q.Label); !w.had[q.ID] || w.scope.Seam || w.scope.Processes == 1 || w.scope.ZooKeeper && q.Permits == 0 {
				remove := Step{Name: "an operator removes contender " + q.ID, Fault: true, Touches: []string{p.name, "store"}}
				remove.Take = func() {
					p.disturb()
					w.takesAway()
					w.store.Remove(at, i)
				}
				steps = append(steps, remove)
			}
		}
	}
	return steps
}

// queueAt are the paths of all queues in the store.
var queueAt = []string{path, other, third, spelled, permitsOf + path}

// mutex returns the path of the mutex that a call uses. If the call uses two, it returns the path of the first one. For permits, it returns
// the path of the semaphore.
func (c Call) mutex() string {
	switch c {
	case Second:
		return other
	case Third:
		return third
	case Named:
		return spelled
	case One, Two, Three:
		return permitsOf + path
	}
	return path
}

// The method permits returns how many permits a call takes.
func (c Call) permits() int { return map[Call]int{One: 1, Two: 2, Three: 3}[c] }

// placeOf returns the path of the queue in which a process is, and its place there. If the process is in no queue, i is -1.
func (w *queues) placeOf(p *process) (at string, i int) {
	for _, at := range queueAt {
		if i := slices.IndexFunc(w.store.Queue(at), func(c second.Contender) bool { return c.Label == p.name }); i >= 0 {
			return at, i
		}
	}
	return "", -1
}

// cut blocks all messages between a process and the store until its session is over and both know that. The messages of other processes
// pass in the meantime. A process that is closed has no session any more.
func (w *queues) cut(p *process) {
	p.disturb()
	w.takesAway()
	w.setCut(p)
	defer w.setCut(nil)
	heal := w.store.cut(p)
	before := p.sessions.Load()
	for wait, again := 10, 0; again < 4 && wait > -patience; wait-- {
		for list := w.ordered(); len(list) > 0; list = w.ordered() {
			v := pass
			if list[0].process == p {
				v = lose
			}
			w.settle(list[0], v)
			synctest.Wait()
		}
		w.judge()
		if wait == 0 {
			heal()
		}
		time.Sleep(lease / 8)
		synctest.Wait()
		if p.sessions.Load() == before {
			continue
		}
		w.setCut(nil)
		if again++; len(w.ordered()) > 0 { // these are requests that the process repeats
			return
		}
	}
}

// The method asks reports whether a process has an unanswered request. The process repeats such a request at random intervals, which
// schedules do not record.
func (w *queues) asks(p *process) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.pending, func(m *message) bool { return m.process == p && !strings.Contains(m.name, " news ") })
}

// unhear blocks all renewals of a process until its lease is over. Then the holds of the process are lost. The process sees that as soon as
// it checks the clock, even if the process was stopped for the whole time.
func (w *queues) unhear(p *process) {
	p.disturb()
	w.takesAway()
	w.delay()
	memory := w.store.(*scripted)
	w.mu.Lock()
	p.unheard, p.certain = true, true
	p.unheardAt = memory.now(p)
	for _, x := range w.spans {
		if hold, ok := x.hold.(*tier.Hold); ok && x.process == p && x.end < 0 {
			waittest.Grant(hold).(interface{ StopWatchdog() }).StopWatchdog()
		}
	}
	w.mu.Unlock()
	for left := time.Duration(1); left > 0; left = time.Duration(p.leased.Load()) + lease/36 - memory.now(p) {
		time.Sleep(left) // a renewal that was sent earlier may be answered in the meantime
		synctest.Wait()
	}
	w.judgeLook(p)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	p.unheard = false
}

// The method refuse makes the store refuse two renewals of a process. The process repeats them, and they succeed long before the lease is
// over.
func (w *queues) refuse(p *process) {
	w.delay()
	w.mu.Lock()
	p.refusals = 2
	w.mu.Unlock()
	time.Sleep(valid + lease/36)
}

// The method delay is called before a step in which much time passes. Messages that wait now wait for all that time, so for their processes
// they are lost.
func (w *queues) delay() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		p.missed = p.missed || w.anyUnderWayLocked(p)
	}
}

// isUnheard reports whether a renewal is lost that the process sent at the given time.
func (w *queues) isUnheard(p *process, sent time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.unheard && sent > p.unheardAt // one that was sent at that instant may have been executed before
}

// The method renewal decides what happens to a renewal of a process.
func (w *queues) renewal(p *process) verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case p.unheard && !w.scope.seed.renews:
		return lose
	case p.refusals > 0:
		p.refusals--
		return refuse
	}
	return pass
}

func (w *queues) setCut(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cutOff = p
}

// disturb records that a process may lose its holds, and its place in the queue.
func (p *process) disturb() {
	w := p.callers[0].world
	w.mu.Lock()
	defer w.mu.Unlock()
	p.disturbed, p.lossAfter = true, w.step
	w.entered = slices.DeleteFunc(w.entered, func(x *process) bool { return x == p })
}

// takesAway records that there was a fault that may take locks away.
func (w *queues) takesAway() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses = true
}

func (p *process) close() {
	w := p.callers[0].world
	w.mu.Lock()
	defer w.mu.Unlock()
	p.closing = true
}

func (w *queues) done() bool {
	return !slices.ContainsFunc(w.processes, func(p *process) bool { return !p.done() })
}

func (p *process) done() bool {
	return !slices.ContainsFunc(p.callers, func(c *caller) bool { return c.state != over && !(p.closing && c.state == idle) })
}

// The method end cancels the call of a caller and releases everything that the caller has.
func (w *queues) end(c *caller) {
	if c.cancel != nil {
		c.cancel()
	}
	w.mu.Lock()
	has := c.has
	c.has = nil
	if c.state == holding || c.state == idle {
		c.state = over
	}
	w.mu.Unlock()
	for _, x := range slices.Backward(has) {
		x.hold.Release()
	}
}

// End finishes everything that is under way.
func (w *queues) End() (outcome string, wrong error) {
	w.mu.Lock()
	w.draining = true
	for _, m := range w.pending {
		m.verdict <- pass
	}
	w.pending = nil
	w.mu.Unlock()
	for range 2 * w.scope.Processes * len(w.scope.all()) {
		for _, p := range w.processes {
			// The callers end one after another. Otherwise an event about one caller might be out of date when another one gets it.
			for _, c := range p.callers {
				synctest.Wait()
				w.end(c)
			}
		}
	}
	synctest.Wait()
	if e, frames := w.store.(*ensemble); frames {
		for _, x := range e.lasting {
			x.end()
		}
	}
	time.Sleep(lease) // the audit has finished after that time
	// In a long schedule, contenders of earlier sessions need more time to be removed.
	if w.scope.Long {
		time.Sleep(3 * lease)
	}
	synctest.Wait()
	w.judgeRest()
	defer func() {
		for _, p := range w.processes {
			p.registry.Close()
		}
		w.store.close()
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.spans, func(x, y *span) int { return cmp.Or(cmp.Compare(x.token, y.token), strings.Compare(x.name, y.name)) })
	for _, x := range w.spans {
		outcome += x.name + " "
	}
	return outcome, w.wrong
}

// State describes the queues, the messages under way, and what the callers know.
func (w *queues) State() string {
	var b strings.Builder
	for _, at := range queueAt {
		for i, c := range w.store.Queue(at) {
			fmt.Fprintf(&b, "%s %d: %s of %s, shared %t, permits %d\n", at, i, c.ID, c.Label, c.Shared, c.Permits)
		}
	}
	var pending []string
	for _, m := range w.ordered() {
		pending = append(pending, m.step())
	}
	fmt.Fprintf(&b, "%q\n", slices.Sorted(slices.Values(pending)))
	for _, p := range w.processes {
		// State does not contain the text of an error, because the text may depend on which goroutine first saw the end of a connection.
		s, err := p.registry.Stats(), p.registry.Err()
		closed := errors.Is(err, tier.ErrClosed)
		fmt.Fprintf(&b, "%s: waiters %d, holds %d, fails %t, closed %t\n", p.name, s.Waiters, s.Holds, err != nil, closed)
		for _, c := range p.callers {
			fmt.Fprintf(&b, "%s: state %d, %d turns, failed %t", c.name, c.state, c.left, c.err != nil)
			for _, x := range c.has {
				fmt.Fprintf(&b, ", has %v", x.hold.Err())
			}
			fmt.Fprintln(&b)
		}
	}
	return b.String()
}
