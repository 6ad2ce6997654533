package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/explore"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/tier"
)

// A scope says what the clients of two hosts do, and which faults are possible. The first host has its agent and the second host another
// one, with the same store.
type scope struct {
	clients []string // of the first host: the parameters of their requests to hold
	far     []string // of the second host
	turns   int      // how often each client holds; 0 means once
	works   int      // for how many seconds a client holds before it releases
	store   bool     // each command to the store, each answer and each notification is a step
	eager   bool     // clients renew while they wait
	slow    bool     // an answer to a renewal arrives in a step of its own

	// The following faults are possible.
	die       bool  // a client dies: its connection ends
	stop      bool  // a client is stopped, and it may wake up later
	unsettled bool  // a client releases although a write may be under way
	unread    bool  // a client renews, but does not read its stream any more
	late      bool  // a client reads no line for two leases, and renews meanwhile
	clock     bool  // a second passes although other steps are possible
	deaf      []int // the store gets no renewals of the first agent for this many seconds
	cut       []int // the store gets nothing from the first agent for this many seconds
	shutdown  bool  // the first agent is shut down, and does not wait for its clients
	leave     bool  // the first agent is shut down, and waits for its clients
	kill      bool  // the first agent dies

	seed string // a defect of the clients that a judge has to find
}

// session is how long the store keeps an agent that does not renew. The command allows no shorter one.
const session = lease * 5 / 2

// A step of the clock takes one tick, a third of the lease.
const tick = time.Second

// A world is a scope in one execution. Its clients speak the protocol of docs/agent.md as clients in other languages do, and believe what
// that page lets them believe.
type world struct {
	*testing.T
	scope   scope
	store   *memory.Server
	hosts   []*site
	clients []*caller
	quiet   int                 // how often time has passed since the last change
	before  func(i, j int) bool // reports whether step i had to come before step j

	mu       sync.Mutex // guards the fields below, and those of the clients
	step     int        // the newest step that was taken
	pending  []*message
	count    map[string]int // how often each name of a message was used
	draining bool
	disturbs bool // there was a fault that may end holds, or delay grants
	wrong    error
	spans    []*span // in the order in which the agents granted
}

// A site is a host with its agent.
type site struct {
	*host
	name    string
	process *memory.Process
	until   time.Time // until then, the store gets no renewals
	ended   bool      // no client may ask the agent any more
	heal    func()    // nil if the agent is not cut off from the store
}

// A message is a command on its way to the store, or an answer or a notification on its way back.
type message struct {
	name    string
	touches []string
	pass    chan struct{}
}

// A caller is a client: a process on a host.
type caller struct {
	world *world
	site  *site
	name  string
	wish  url.Values
	left  int // turns

	state    state
	conn     *plug
	sent     time.Time // when it sent the request to hold
	inbox    []event   // lines of the stream that it has not read yet
	answers  []func()  // answers to renewals that it has not read yet
	renewed  time.Time // when it sent its newest renewal
	counts   []counted
	id       string
	serial   int64
	span     *span // nil before the agent has granted
	notified bool  // the agent has sent contended
	stopped  bool
	unread   bool
	full     time.Time // since when it does not read its stream
	late     time.Time // until then, it reads no line
}

type state int

const (
	idle state = iota
	waiting
	holding // it has read that it holds
	releasing
	over
)

// A counted renewal was answered.
type counted struct {
	sent   time.Time
	serial int64
	id     string
}

// A span is the time for which a client counts on its hold. It begins after one step, and ends after another.
type span struct {
	*caller
	marks      map[string]oracle.Mark // by path
	begin, end int                    // steps; -1: not yet
	since      time.Time
	clean      bool // the client has declared that its writes were answered
}

// A plug is the client's end of a connection.
type plug struct {
	net.Conn
	full   atomic.Bool // the client does not read any more
	closed chan struct{}
	once   sync.Once
}

func (p *plug) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if p.full.Load() {
		<-p.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (p *plug) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}

// The method stick makes the client read nothing any more.
func (p *plug) stick() {
	p.full.Store(true)
	p.SetReadDeadline(time.Now()) // ends the read that is under way
}

func (s scope) begin(t *testing.T) explore.World {
	w := &world{T: t, scope: s, store: memory.NewServer(), step: -1, count: make(map[string]int)}
	w.store.Script(w.decide)
	wishes := [][]string{s.clients, s.far}
	for i := range wishes {
		if wishes[i] != nil {
			w.hosts = append(w.hosts, &site{name: fmt.Sprint("h", i+1)})
		}
	}
	for i, h := range w.hosts { // all of them are in the list before the first one sends a command
		h.process = w.store.Dial(h.name, session, nil)
		h.process.Deliver(func(m queue.Record) bool { return w.deliver(h, m) })
		h.host = serveLocks(t, tier.New(h.process.Tier), h.name)
		for _, wish := range wishes[i] {
			values, err := url.ParseQuery(wish)
			if err != nil {
				t.Fatal(err)
			}
			c := &caller{world: w, site: h, name: string(rune('a' + len(w.clients))), wish: values, left: max(s.turns, 1)}
			w.clients = append(w.clients, c)
		}
	}
	synctest.Wait() // until all agents have a session
	return w
}

// explored reports whether the search tries commands of this kind in all orders.
func explored(op queue.Op) bool {
	return !slices.Contains([]queue.Op{queue.Open, queue.Beat, queue.Goodbye, queue.Audit, queue.Drop}, op)
}

func (w *world) decide(name string, c queue.Command) memory.Fault {
	h := w.hosts[slices.IndexFunc(w.hosts, func(h *site) bool { return h.name == name })]
	w.mu.Lock()
	deaf := time.Now().Before(h.until)
	w.mu.Unlock()
	switch {
	case c.Op == queue.Beat && deaf:
		return memory.Fault{Never: true}
	case explored(c.Op):
		w.post(h.name+" "+string(c.Op)+" "+c.ID+" is executed", "store")
	}
	return memory.Fault{}
}

func (w *world) deliver(h *site, m queue.Record) (lost bool) {
	switch v := m.Answer.View; {
	case m.Command.Op == "":
		w.post(fmt.Sprintf("%s news of %s: known %t, has %t, behind %t arrives", h.name, v.ID, v.Known, v.Has, v.Behind), h.name)
	case explored(m.Command.Op):
		w.post(h.name+" answer to "+string(m.Command.Op)+" "+m.Command.ID+" arrives", h.name)
	}
	return false
}

// The method post makes a message wait for its step.
func (w *world) post(name, touches string) {
	w.mu.Lock()
	if w.draining || !w.scope.store {
		w.mu.Unlock()
		return
	}
	if w.count[name]++; w.count[name] > 1 {
		name = fmt.Sprintf("%s #%d", name, w.count[name])
	}
	m := &message{name, []string{touches, name}, make(chan struct{})}
	w.pending = append(w.pending, m)
	w.mu.Unlock()
	<-m.pass
}

// patience is how many seconds may pass without a change until all clients that are left have got the lock.
func (w *world) patience() int {
	n := int(lease/tick) + 2 + w.scope.works
	if w.scope.late {
		n += int(2 * lease / tick)
	}
	if w.disturbs { // an agent first learns that its session has ended
		n += int(2*session/tick) + slices.Max(slices.Concat(w.scope.deaf, w.scope.cut, []int{0}))
	}
	return n
}

// An adder adds a step that is possible.
type adder func(fault bool, name string, take func(), touches ...string)

// An execution counts as endless if it has more than mostSteps steps.
const mostSteps = 300

// Steps returns the steps that are possible: the messages, the requests, the releases, and the faults.
func (w *world) Steps(before func(i, j int) bool) (steps []explore.Step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
	if w.judgeLocked(); w.step > mostSteps {
		w.blameLocked("waits", "the execution does not end")
	}
	if w.wrong != nil {
		return nil
	}
	step := func(fault bool, name string, take func(), touches ...string) {
		steps = append(steps, explore.Step{Name: name, Touches: touches, Fault: fault, Take: func() {
			w.mu.Lock()
			w.step++
			w.quiet = 0
			take()
			w.mu.Unlock()
		}})
	}
	w.asksLocked(step)
	slices.SortFunc(w.pending, func(a, b *message) int { return strings.Compare(a.name, b.name) })
	for _, m := range w.pending {
		step(false, m.name, func() {
			w.pending = slices.DeleteFunc(w.pending, func(x *message) bool { return x == m })
			close(m.pass)
		}, m.touches...)
	}
	w.readsLocked(step)
	w.releasesLocked(step)
	busy := slices.ContainsFunc(steps, func(x explore.Step) bool { return !x.Fault })
	if !busy {
		w.judgeQuietLocked()
	}
	if w.wrong != nil {
		return nil
	}
	done := !slices.ContainsFunc(w.clients, func(c *caller) bool { return c.state != over })
	if !busy && !done && w.quiet < w.patience() {
		step(false, "time passes", w.pass(), explore.Everything)
	}
	if !done {
		w.faultsLocked(step, busy)
	}
	return steps
}

// pass returns a step of the clock.
func (w *world) pass() func() {
	quiet := w.quiet
	return func() { w.passLocked(quiet) }
}

func (w *world) passLocked(quiet int) {
	w.mu.Unlock()
	time.Sleep(tick)
	synctest.Wait()
	w.mu.Lock()
	w.quiet = quiet + 1
}

// asksLocked adds the requests to hold. Clients with the same wish are interchangeable, and ask in one order only.
func (w *world) asksLocked(step adder) {
	for i, c := range w.clients {
		twin := i > 0 && w.clients[i-1].site == c.site && w.clients[i-1].wish.Encode() == c.wish.Encode()
		switch {
		case c.state != idle || twin && w.clients[i-1].state == idle:
		case c.site.ended:
			c.state = over
		default:
			touches := c.touches()
			if i+1 < len(w.clients) {
				touches = append(touches, w.clients[i+1].name)
			}
			step(false, c.name+" asks", c.askLocked, touches...)
		}
	}
}

// readsLocked adds the steps in which clients read, and renew.
func (w *world) readsLocked(step adder) {
	for _, c := range w.clients {
		if c.stopped {
			step(w.quiet < w.patience(), c.name+" wakes up", func() { c.stopped = false }, c.touches()...)
			continue
		}
		if len(c.inbox) > 0 && !time.Now().Before(c.late) {
			touches := c.touches()
			if c.inbox[0].Event == "acquired" { // after any other line, the client closes the connection
				touches = []string{c.name}
			}
			step(false, c.name+" reads that it has "+c.inbox[0].Event, c.readLocked, touches...)
		}
		if len(c.answers) > 0 {
			step(false, c.name+" reads the answer to a renewal", func() {
				answer := c.answers[0]
				c.answers = c.answers[1:]
				answer()
			}, c.name)
		}
		if c.dueLocked() {
			quiet := w.quiet
			step(false, c.name+" renews", func() {
				w.quiet = quiet
				c.renewLocked()
			}, c.touches()...)
		}
	}
}

// dueLocked reports whether a client renews now: once after each tick, and if it cannot count on its hold otherwise.
func (c *caller) dueLocked() bool {
	now := time.Now()
	switch {
	case !c.renewed.Before(now):
		return false
	case c.state == waiting:
		return c.world.scope.eager && c.sent.Before(now) && !c.site.ended
	}
	return c.state == holding && (c.sent.Before(now) || !c.countsLocked())
}

// releasesLocked adds the steps in which clients end their holds.
func (w *world) releasesLocked(step adder) {
	for _, c := range w.clients {
		switch {
		case c.state != holding || c.stopped || c.dueLocked() || w.scope.seed == "a client keeps its hold":
		case !c.countsLocked():
			step(false, c.name+" gives up its hold", func() { c.releaseLocked(true) }, c.touches()...)
		case time.Since(c.span.since) >= time.Duration(w.scope.works)*tick:
			step(false, c.name+" releases", func() { c.releaseLocked(false) }, c.touches()...)
		}
	}
}

// touches returns the parts of the world that a request of a client reads or changes.
func (c *caller) touches() []string {
	touches := []string{c.name, c.site.name}
	if !c.world.scope.store { // the agents use the store in the same step
		for _, h := range c.world.hosts {
			touches = append(touches, h.name)
		}
	}
	return touches
}

func (w *world) faultsLocked(step adder, busy bool) {
	s := w.scope
	for _, c := range w.clients {
		both := c.touches()
		if s.die && c.state != idle && c.state != over {
			step(true, c.name+" dies", c.dieLocked, both...)
		}
		if s.stop && !c.stopped && (c.state == waiting || c.state == holding) {
			step(true, c.name+" is stopped", func() { c.stopped = true }, both...)
		}
		if s.late && (c.state == waiting || c.state == holding) && !c.stopped && c.late.IsZero() {
			step(true, c.name+" reads late", func() { c.late = time.Now().Add(2 * lease) }, both...)
		}
		if s.unsettled && c.state == holding && c.countsLocked() && !c.stopped {
			step(true, c.name+" releases unsettled", func() { c.releaseLocked(true) }, both...)
		}
		if s.unread && c.state == holding && !c.unread {
			step(true, c.name+" reads nothing any more", func() {
				c.unread, c.full = true, time.Now()
				c.conn.stick()
			}, both...)
		}
	}
	first := w.hosts[0]
	everything := func(on bool, name string, take func()) {
		if on && !first.ended {
			step(true, name, func() {
				w.disturbs = true
				take()
			}, explore.Everything)
		}
	}
	if s.clock && busy {
		step(true, "a second passes", w.pass(), explore.Everything)
	}
	for _, n := range s.deaf {
		everything(!time.Now().Before(first.until), fmt.Sprintf("the store gets no renewals of h1 for %d s", n), func() {
			first.until = time.Now().Add(time.Duration(n) * tick)
		})
	}
	for _, n := range s.cut {
		everything(first.heal == nil, fmt.Sprintf("h1 is cut off for %d s", n), func() {
			heal := first.process.Cut()
			first.heal = heal
			time.AfterFunc(time.Duration(n)*tick, func() {
				heal()
				w.mu.Lock()
				defer w.mu.Unlock()
				first.heal = nil
			})
		})
	}
	everything(s.shutdown, "h1 ends at once", func() { first.end(true) })
	everything(s.shutdown && s.late, "h1 ends at once, and its clients read late", func() {
		for _, c := range w.clients {
			if c.site == first {
				c.late = time.Now().Add(2 * lease)
			}
		}
		first.end(true)
	})
	everything(s.leave, "h1 ends", func() { first.end(false) })
	everything(s.kill, "h1 dies", func() {
		first.ended = true
		first.heal = first.process.Cut()
		go first.agent.server.Close()
	})
}

func (h *site) end(now bool) {
	ctx, cancel := context.WithCancel(context.Background())
	if now {
		cancel()
	}
	h.ended = true
	go func() {
		defer cancel()
		h.agent.Shutdown(ctx)
	}()
}

// The method do sends a request on a connection of its own. It calls answered with the locked mutex; if there was no answer, the status is
// 0.
func (c *caller) do(what string, query url.Values, answered func(status int, body []byte)) {
	w := c.world
	go func() {
		status, body := 0, []byte(nil)
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			answered(status, body)
		}()
		conn, response, err := c.request(what, query, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		status = response.StatusCode
		body, _ = io.ReadAll(response.Body)
	}()
}

// request sends a request, and reads the head of the answer.
func (c *caller) request(what string, query url.Values, opened func(*plug)) (*plug, *http.Response, error) {
	near, err := c.site.dial(context.Background())
	if err != nil {
		return nil, nil, err
	}
	conn := &plug{Conn: near, closed: make(chan struct{})}
	if opened != nil {
		opened(conn)
	}
	if _, err = fmt.Fprintf(conn, "POST /v1/%s?%s HTTP/1.1\r\nHost: agent\r\n\r\n", what, query.Encode()); err != nil {
		conn.Close()
		return nil, nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, response, nil
}

// askLocked sends a request to hold.
func (c *caller) askLocked() {
	w := c.world
	c.state, c.sent, c.id, c.serial, c.span, c.counts, c.notified = waiting, time.Now(), "", 0, nil, nil, false
	go func() {
		conn, response, err := c.request("hold", c.wish, func(p *plug) {
			w.mu.Lock()
			defer w.mu.Unlock()
			c.conn = p
		})
		if err == nil {
			defer conn.Close()
			if response.StatusCode == http.StatusOK {
				c.hear(conn, response.Body)
				return
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		c.inbox = append(c.inbox, event{Event: "been refused"})
	}()
}

// hear reads the stream of a hold.
func (c *caller) hear(conn *plug, stream io.Reader) {
	w := c.world
	lines := json.NewDecoder(stream)
	for {
		var e event
		err := lines.Decode(&e)
		w.mu.Lock()
		switch {
		case c.state == over || c.state == releasing || c.conn != conn: // it has died, or has ended the hold itself
		case err != nil:
			c.inbox = append(c.inbox, event{Event: "no connection"})
		case e.Event == "acquired":
			w.grantedLocked(c, e)
			c.inbox = append(c.inbox, e)
		case e.Event == "contended":
			if !slices.ContainsFunc(w.clients, func(d *caller) bool { return d != c && !d.sent.IsZero() && c.excludes(d) }) {
				w.blameLocked("contended", "%s learns that another client waits, and no other client has asked", c.name)
			}
			c.notified = w.scope.seed != "a client does not learn that another one waits"
		case e.Event != "alive":
			c.inbox = append(c.inbox, e)
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// readLocked reads the next line of the stream.
func (c *caller) readLocked() {
	e := c.inbox[0]
	c.inbox = c.inbox[1:]
	switch e.Event {
	case "acquired":
		c.state, c.id, c.serial = holding, e.ID, e.Serial
		c.beginLocked()
	default:
		c.world.judgeEndLocked(c, e.Event+" "+e.Cause)
		c.endLocked(over)
	}
}

// untilLocked returns until when the client may count on its hold.
func (c *caller) untilLocked() time.Time {
	until := c.sent
	for _, one := range c.counts {
		if (one.id == c.id || one.serial <= c.serial) && one.sent.After(until) {
			until = one.sent
		}
	}
	if c.world.scope.seed == "a client counts on its hold for too long" {
		return until.Add(lease + 1)
	}
	return until.Add(c.site.agent.validity())
}

// countsLocked reports whether the client counts on its hold.
func (c *caller) countsLocked() bool {
	return c.state == holding && c.span.begin >= 0 && c.span.end < 0
}

// beginLocked makes the client count on its hold, if it may.
func (c *caller) beginLocked() {
	if c.state == holding && c.span.begin < 0 && time.Now().Before(c.untilLocked()) {
		c.span.begin, c.span.since = c.world.step, time.Now()
	}
}

// endLocked ends the turn of a client.
func (c *caller) endLocked(next state) {
	if c.span != nil && c.span.begin >= 0 && c.span.end < 0 {
		c.span.end = c.world.step
	}
	c.inbox, c.answers = nil, nil
	if c.state = next; next == over {
		if c.conn != nil && c.world.scope.seed != "a dead client keeps its connection" {
			c.conn.Close()
			c.conn = nil
		}
		if c.left--; c.left > 0 {
			c.state = idle
		}
	}
}

func (c *caller) dieLocked() {
	c.left = 0
	c.stopped = false
	c.endLocked(over)
}

func (c *caller) renewLocked() {
	sent, query, id := time.Now(), url.Values{}, c.id
	if c.renewed = sent; id != "" && c.world.scope.seed != "a renewal names no hold" {
		query.Set("id", id)
	}
	c.do("renew", query, func(status int, body []byte) {
		answer := func() {
			var r renewal
			if status != http.StatusOK || json.Unmarshal(body, &r) != nil {
				if !c.world.disturbs && c.state != over {
					c.world.blameLocked("fails", "a renewal of %s gets the answer %d", c.name, status)
				}
				return
			}
			if id != "" && slices.Contains(r.Ended, id) {
				if c.id == id && c.state == holding {
					c.world.judgeEndLocked(c, "is not renewed")
					c.endLocked(over)
				}
				return
			}
			c.counts = append(c.counts, counted{sent, r.Serial, id})
			c.beginLocked()
		}
		if c.world.scope.slow && !c.world.draining {
			c.answers = append(c.answers, answer)
			return
		}
		answer()
	})
}

func (c *caller) releaseLocked(unsettled bool) {
	counted, query := c.countsLocked(), url.Values{"id": {c.id}}
	if unsettled && c.world.scope.seed != "an unsettled release looks clean" {
		query.Set("unsettled", "1")
	}
	c.span.clean = !unsettled
	c.endLocked(releasing)
	c.do("release", query, func(status int, _ []byte) {
		w := c.world
		if counted && status != http.StatusOK && !w.disturbs && !c.unread {
			w.blameLocked("fails", "the release of %s gets the answer %d", c.name, status)
		}
		if c.state == releasing {
			c.endLocked(over)
		}
	})
}

// State describes everything that has to be the same if independent steps are taken in another order.
func (w *world) State() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, path := range w.pathsLocked() {
		for _, c := range w.store.Queue(path) {
			fmt.Fprintf(&b, "%s: %s of %s, shared %t, permits %d\n", path, c.ID, c.Label, c.Shared, c.Permits)
		}
	}
	for _, m := range w.pending {
		fmt.Fprintln(&b, m.name)
	}
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "%s: %d holds, %d clients\n", h.name, len(h.ids()), h.seats())
	}
	for _, c := range w.clients {
		fmt.Fprintf(&b, "%s: state %d, %d turns, counts %t, stopped %t\n", c.name, c.state, c.left, c.countsLocked(), c.stopped)
	}
	return b.String()
}

func (w *world) pathsLocked() (paths []string) {
	for _, c := range w.clients {
		for _, path := range c.wish["path"] {
			if c.wish.Has("of") {
				path = "permits of " + path // as package memory names the queue of a semaphore
			}
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// seats returns how many clients hold or wait at the agent, counted once for each lock.
func (h *host) seats() (n int) {
	h.agent.mu.Lock()
	defer h.agent.mu.Unlock()
	for _, seats := range h.agent.places {
		n += len(seats)
	}
	return n
}

// End ends all clients, and then the agents.
func (w *world) End() (outcome string, wrong error) {
	w.mu.Lock()
	w.draining = true
	for _, m := range w.pending {
		close(m.pass)
	}
	w.pending = nil
	for _, c := range w.clients {
		if c.conn != nil {
			c.conn.Close()
		}
		c.state, c.left = over, 0
	}
	w.mu.Unlock()
	time.Sleep(2 * session)
	synctest.Wait()
	w.mu.Lock()
	w.judgeRestLocked()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if h.heal != nil {
			h.heal()
		}
	}
	for _, x := range w.spans {
		outcome += fmt.Sprintf("%s %t %t; ", x.name, x.begin >= 0, x.clean)
	}
	return outcome, w.wrong
}
