package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// Rules say in which respects a store differs from the model.
type Rules struct {
	OwnTTL    bool // each contender has its own lease, and a renewal is for the contenders that it names; otherwise the session has the lease
	Brittle   bool // a contender may vanish at any time, because it ends with its connection
	Forgets   bool // a server in its grace period may have lost writes that another server acknowledged shortly before
	Nodes     bool // the store is ZooKeeper, for which there is another model
	Unordered bool // the place in the queue is not known before the lock is granted, and two processes may use the same names
}

const (
	// skew is the largest difference that two processes' clocks may have in their records.
	skew = 100 * time.Microsecond
	// forgotten limits the time from the moment at which a server loses data to its first answer that it grants nothing. As long as the
	// server gives such answers, other processes may still learn of the loss.
	forgotten = 2 * time.Second
)

// Check looks for an order of execution in which the store can have given all answers. If there is one, Check returns nil. Otherwise it
// returns an error that names the first event that is impossible. The clocks of the processes may differ a little; Check assumes the
// difference that is best for the store. If there are too many orders, Check tries only some of them. If none of these explains an
// event, the result is undecided.
func Check(events []Event, rules Rules) (undecided bool, err error) {
	if rules.Nodes {
		return false, checkNodes(events)
	}
	_, err = check(events, rules, 1<<6, 0)
	return errors.Is(err, errUndecided), err
}

// check first looks at a limited number of states. Before it refuses an event, it starts again with a higher limit, because one of the
// states that it left out may explain the event. It returns looked plus the number of states that it has looked at.
func check(events []Event, rules Rules, enough, looked int) (int, error) {
	c := &checker{
		rules: rules, enough: enough, looked: looked, patience: surplus + 8*len(events),
		histories: map[string]*history{}, ops: map[command]*op{}, leases: map[session]*lease{},
		contenders: map[string]*contender{}, told: map[grant]told{},
	}
	for i, e := range c.prepare(events) {
		err := c.take(e)
		switch {
		case err == nil:
			continue
		case c.cut && enough < most && c.looked < c.patience:
			return check(events, rules, 8*max(enough, 1), c.looked)
		case c.cut:
			err = fmt.Errorf("%w: %w", errUndecided, err)
		}
		return c.looked, e.wrong(i, len(events), err)
	}
	return c.looked, nil
}

// wrong returns the error for the i-th event. The error has the time with which the event is written in the file of its process.
func (e Event) wrong(i, length int, err error) error {
	at := e.At
	if e.Kind == Got {
		at = at.Add(-skew)
	}
	return fmt.Errorf("process %s at %d, event %d of %d: %w", e.Process, at, i+1, length, err)
}

// A checker follows the events at all queues.
type checker struct {
	rules      Rules
	looked     int                 // number of states looked at so far, including those that a command leads to
	patience   int                 // the highest number that looked may reach
	enough     int                 // after this number of states, the search ends as soon as there is an explanation
	cut        bool                // the search has left out states
	histories  map[string]*history // by path
	ops        map[command]*op
	leases     map[session]*lease
	contenders map[string]*contender
	told       map[grant]told
	silent     []clock.Instant // the times at which servers said that they grant nothing
}

type (
	command struct {
		process string
		number  int64
	}
	session struct{ process, name string }
	grant   struct {
		process, path string
		token         int64
	}
	told struct {
		at        clock.Instant
		contender *contender
	}
)

// A contender is what the checker knows about a contender that some event mentions. It may never have been in the queue.
type contender struct {
	process string
	session string
	at      *history
	lease   lease // counts if each contender has its own lease
	seen
	tokens map[int64]*seen // what the trace shows about it with each token, because its name may be used again
}

// A seen is what the whole trace shows about a contender with one token.
type seen struct {
	path      string        // the queue that it entered
	told      clock.Instant // when a view showed it for the first time
	mentioned clock.Instant // when an event mentioned it for the last time
	alive     clock.Instant // it was in the queue at this time or later
	answered  bool          // the answer to its own Enter or Try showed it
	facts
}

// contender.of returns what the trace shows about a contender with a given token. If token is 0, it returns what is known of the name.
func (p *contender) of(token int64) *seen {
	if token == 0 {
		return &p.seen
	}
	if p.tokens[token] == nil {
		p.tokens[token] = &seen{}
	}
	return p.tokens[token]
}

// The method tell records that a view has shown the contender. The contender therefore still existed at some time that is not before the
// parameter alive.
func (s *seen) tell(v View, alive clock.Instant) {
	if v.InGracePeriod {
		return
	}
	s.alive = max(s.alive, alive)
	s.facts = s.add(facts{v.Has, v.Asked, v.Behind}, all)
}

// The method token returns the first token that was reported after the contender's Enter was sent. It returns 0 if there is none.
func (p *contender) token(path string, sent clock.Instant) (token int64) {
	for t, s := range p.tokens {
		if t != 0 && s.path == path && s.told >= sent && (token == 0 || s.told < p.tokens[token].told) {
			token = t
		}
	}
	return token
}

// A lease says how long a store keeps something that is not renewed.
type lease struct {
	ttl   time.Duration
	until clock.Instant // the lease cannot end before
	over  bool          // the store has said that it has ended
}

// renew extends the lease from when the renewal was sent, because the store cannot have received it earlier. It subtracts one percent,
// because the store's clock may be a little faster.
func (l *lease) renew(sent clock.Instant) { l.until = max(l.until, sent.Add(l.ttl-l.ttl/100)) }

// The method prepare sorts the events. It also collects what later events show about earlier ones: the answer to each command, and the
// time up to which each contender is known to have been there.
func (c *checker) prepare(events []Event) []Event {
	events = slices.Clone(events)
	for i, e := range events {
		if c.rules.Unordered {
			events[i] = apart(e)
		}
	}
	events = inOrder(events)
	for _, e := range events {
		switch o := c.ops[command{e.Process, e.Number}]; {
		case e.Kind == Sent:
			o = &op{Command: *e.Command, process: e.Process, sent: e.At}
			c.ops[command{e.Process, e.Number}] = o
			c.mention(e.At, append(o.Among, o.Ref)...)
			if o.enters() {
				c.contenders[o.ID].path = o.Path
			}
		case e.Kind == Answered && o != nil:
			o.answer, o.answered = e.Answer, e.At
			c.mention(e.At, append(e.Answer.Present, o.Ref)...)
			for _, v := range append(e.Answer.Views, e.Answer.View) {
				c.tells(e.At, v, o.sent)
			}
			if v := e.Answer.View; v.Known && o.enters() {
				c.contenders[o.ID].of(v.Token).answered = true
			}
		case e.Kind == News:
			c.tells(e.At, *e.News, 0)
		}
		if c.rules.Forgets && e.inGracePeriod() {
			c.silent = append(c.silent, e.At)
		}
	}
	for _, o := range c.ops {
		if p := c.contenders[o.ID]; o.enters() {
			switch {
			case c.rules.Unordered:
			case !o.open() && o.answer.View.Known:
				o.token = o.answer.View.Token
			default:
				o.token = p.token(o.Path, o.sent)
				o.repeated = o.token != 0 && p.of(o.token).answered
			}
			if o.told = p.of(o.token).facts; c.rules.Unordered {
				o.told = all
			}
			if h := c.at(o.Ref); o.token != 0 {
				h.tokens = append(h.tokens, o.token)
			}
		}
	}
	for _, h := range c.histories {
		slices.Sort(h.tokens)
	}
	return events
}

// The function inOrder sorts events by time, as exactly as the different clocks of the processes allow.
func inOrder(events []Event) []Event {
	events = slices.Clone(events)
	for i, e := range events {
		switch e.Kind {
		case Sent:
			events[i].At = e.At.Add(-skew)
		case Got:
			events[i].At = e.At.Add(skew)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	return events
}

// The method tells records what a view shows. sent is when the view was requested. A notification was not requested and may be late; its
// sent is 0.
func (c *checker) tells(at clock.Instant, v View, sent clock.Instant) {
	c.mention(at, Ref{ID: v.ID, Token: v.Token}, Ref{ID: v.Nearest})
	if p := c.contenders[v.ID]; v.Known {
		p.seen.tell(v, sent)
		if s := p.of(v.Token); s != &p.seen {
			s.tell(v, sent)
			if s.told == 0 {
				s.told, s.path = at, p.path
			}
		}
	}
}

func (c *checker) mention(at clock.Instant, refs ...Ref) {
	for _, r := range refs {
		p := c.contenders[r.ID]
		if p == nil {
			p = &contender{tokens: map[int64]*seen{}}
			c.contenders[r.ID] = p
		}
		p.mentioned, p.of(r.Token).mentioned = at, at
	}
}

// The method take checks whether an event is possible after all earlier ones.
func (c *checker) take(e Event) error {
	o := c.ops[command{e.Process, e.Number}]
	switch e.Kind {
	case Sent:
		c.send(o)
	case Answered:
		if o == nil {
			return fmt.Errorf("an answer to command %d, which was not sent", e.Number)
		}
		return c.answer(o)
	case News:
		return c.news(e)
	case Got, Valid:
		return c.hold(e)
	}
	return nil
}

// checker.at returns the history of the queue that a contender is in. The permits of a path have a queue of their own.
func (c *checker) at(r Ref) *history {
	path := r.Path
	if r.Permits > 0 {
		path = "permits of " + path
	}
	h := c.histories[path]
	if h == nil {
		h = &history{checker: c, path: path, states: []*state{{unordered: c.rules.Unordered}}}
		c.histories[path] = h
	}
	return h
}

// send records that a command was sent. From now on the store may execute it.
func (c *checker) send(o *op) {
	switch o.Op {
	case queue.Enter, queue.Try:
		p := c.contenders[o.ID]
		p.process, p.session, p.at = o.process, o.Session, c.at(o.Ref)
		p.at.begin(o)
	case queue.Leave, queue.Share, queue.Weigh, queue.Look, queue.Ask:
		c.at(o.Ref).begin(o)
	case queue.Drop, queue.Goodbye:
		for _, r := range o.Among {
			if h := c.contenders[r.ID].at; h != nil { // not looked up by the path in r, because an audit may report another path
				h.begin(&op{Command: Command{Op: queue.Leave, Session: o.Session, Ref: r}, process: o.process, sent: o.sent})
			}
		}
	case queue.Beat:
		o.look()
		for _, l := range o.looks {
			c.at(l.Ref).begin(l)
		}
	}
}

// answer checks whether the answer to a command is possible.
func (c *checker) answer(o *op) error {
	x, done := c.leases[session{o.process, o.Session}], o.answer.Outcome == queue.Done
	if x != nil && !c.rules.Brittle {
		if err := x.allows(o, c.rules.OwnTTL); err != nil {
			return fmt.Errorf("%s of %s: %w", o.Op, cmp.Or(o.ID, o.Session), err)
		}
	}
	switch o.Op {
	case queue.Open:
		if done {
			x = &lease{ttl: o.answer.TTL}
			x.renew(o.sent)
			c.leases[session{o.process, o.answer.Session}] = x
		}
		return nil
	case queue.Audit, queue.List, queue.Drop, queue.Goodbye:
		return nil
	case queue.Beat:
		if !done || x == nil {
			return nil
		}
		x.renew(o.sent)
		return c.renewed(o, x.ttl)
	}
	h := c.at(o.Ref)
	if err := h.answer(o); err != nil {
		return err
	}
	c.tell(o.process, h, o.answer.View, o.answered)
	if p := c.contenders[o.ID]; done && x != nil && o.enters() {
		p.lease.ttl = x.ttl
		p.lease.renew(o.sent)
	}
	return nil
}

// The method allows checks an answer against what is known of the session: can the session have expired, or can it still exist?
func (l *lease) allows(o *op, own bool) error {
	switch {
	case o.answer.Outcome == queue.Expired && o.answered < l.until:
		return fmt.Errorf("session %s is over %v before it can be", o.Session, l.until.Sub(o.answered))
	case o.answer.Outcome == queue.Expired:
		l.over = true
	case o.answer.Outcome == queue.Done && l.over && o.sent > l.until && !own && (o.enters() || o.Op == queue.Beat):
		return fmt.Errorf("executed under session %s, which was over", o.Session)
	}
	return nil
}

// The method renewed checks each view that a renewal has returned.
func (c *checker) renewed(o *op, ttl time.Duration) error {
	if len(o.looks) < len(o.answer.Views) {
		return errors.New("a renewal tells of a contender that it did not name")
	}
	missing := map[string]bool{}
	for _, look := range o.looks {
		h := c.at(look.Ref)
		if err := h.answer(look); err != nil {
			return err
		}
		c.tell(o.process, h, look.answer.View, o.answered)
		missing[look.ID] = !look.answer.View.Known
	}
	for _, r := range o.Among {
		if p := c.contenders[r.ID]; !missing[r.ID] {
			p.lease.ttl = ttl
			p.lease.renew(o.sent)
		}
	}
	return nil
}

// The method news checks a notification, which may be late. It has to be true now, or to have been true before.
func (c *checker) news(e Event) error {
	p := c.contenders[e.News.ID]
	if p.process != e.Process {
		return fmt.Errorf("news of %s, which is of process %q", e.News.ID, p.process)
	}
	if err := p.at.news(*e.News, e.At); err != nil {
		return err
	}
	c.tell(e.Process, p.at, *e.News, e.At)
	return nil
}

// The method tell records that a view has shown to a process that it has the lock.
func (c *checker) tell(process string, h *history, v View, now clock.Instant) {
	h.top = max(h.top, v.Token)
	g := grant{process, h.path, v.Token}
	if _, known := c.told[g]; v.Has && !known {
		c.told[g] = told{now, c.contenders[v.ID]}
	}
}

// hold checks whether a program can have acquired its lock, or whether it can still hold the lock.
func (c *checker) hold(e Event) error {
	for _, path := range []string{e.Hold.Path, "permits of " + e.Hold.Path} {
		t, ok := c.told[grant{e.Process, path, e.Hold.Token}]
		if !ok {
			continue
		}
		if until := c.until(t.contender); e.Kind == Valid && e.At.Add(-skew) > until && !c.rules.Brittle {
			return fmt.Errorf("%s: has the lock with token %d, %v after the end of its lease", e.Hold.Path, e.Hold.Token, e.At.Sub(until))
		}
		return nil
	}
	return fmt.Errorf("%s: has the lock with token %d, and was not told so", e.Hold.Path, e.Hold.Token)
}

// checker.until returns the end of a contender's lease. The contender stays until then if no command removes it.
func (c *checker) until(p *contender) clock.Instant {
	if x := c.leases[session{p.process, p.session}]; x != nil && !c.rules.OwnTTL {
		return x.until
	}
	return p.lease.until
}

// The method past returns a time after which the contender of an unanswered command is certainly gone. If the contender has a lease of its
// own, that lease starts when the store executes the command. The checker assumes that this happens within two leases after the command was
// sent. A store checks for expired leases only from time to time, and not while it is paused. Therefore a contender may stay for two more
// leases.
func (c *checker) past(o *op) clock.Instant {
	until := c.until(c.contenders[o.ID])
	if x := c.leases[session{o.process, o.Session}]; x != nil {
		if c.rules.OwnTTL {
			until = max(until, o.sent.Add(2*x.ttl))
		}
		until = until.Add(2 * x.ttl)
	}
	return until
}

// The method forgets reports whether a server may have lost data at the time now.
func (c *checker) forgets(now clock.Instant) bool {
	i, _ := slices.BinarySearch(c.silent, now)
	return i < len(c.silent) && c.silent[i].Sub(now) < forgotten
}
