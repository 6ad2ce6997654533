package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/inspect"
)

// What the page gets is bounded, however many locks there are and however fast they change hands.
const (
	window     = 5 * time.Minute // of history
	maxLocks   = 200
	maxWaiters = 30
	maxSpans   = 300
)

// An album is what was seen of each lock, for a while.
type album struct {
	path  string
	every time.Duration
	locks map[string]*history
}

// A history is who held a lock when, as far as was seen.
type history struct {
	spans  []span // the last one may go on
	unseen int64
}

// A span is a time during which each look found the same node at the head of the queue.
type span struct {
	Who  string `json:"who"`
	From int64  `json:"from"` // in ms, as State.At
	To   int64  `json:"to"`

	node string
	open bool
}

type state struct {
	Path     string `json:"path"`
	At       int64  `json:"at"` // of the last look, in ms
	Every    int64  `json:"every"`
	Window   int64  `json:"window"`
	Trouble  string `json:"trouble"`
	Complete bool   `json:"complete"`
	More     int    `json:"more"` // locks that are not shown
	Locks    []lock `json:"locks"`
}

type lock struct {
	Path    string    `json:"path"`
	Holder  *someone  `json:"holder"`
	Waiting int       `json:"waiting"`
	Waiters []someone `json:"waiters"` // the first of them
	Spans   []span    `json:"spans"`
	Unseen  int64     `json:"unseen"`
}

type someone struct {
	Who   string `json:"who"`
	Kind  string `json:"kind"`
	State string `json:"state"`
	Age   int64  `json:"age"` // of the node, in ms; -1 if it may not be read
	Token string `json:"token"`
}

// add puts a sight into the album and returns the state of the page.
func (a *album) add(sight inspect.Sight) []byte {
	queues := make(map[string]*inspect.Queue)
	for _, q := range sight.Queues {
		queues[q.Path] = q
	}
	if sight.Trouble == "" {
		a.remember(queues, sight)
	}
	s := state{
		Path: inspect.Clean(a.path), At: sight.At.UnixMilli(), Every: a.every.Milliseconds(), Window: window.Milliseconds(),
		Trouble: inspect.Clean(sight.Trouble), Complete: sight.Complete, Locks: []lock{},
	}
	for _, path := range slices.Sorted(maps.Keys(a.locks)) {
		if len(s.Locks) == maxLocks {
			s.More = len(a.locks) - maxLocks
			break
		}
		s.Locks = append(s.Locks, show(path, queues[path], a.locks[path]))
	}
	text, _ := json.Marshal(s) // numbers and strings: cannot fail
	return text
}

// remember adds what was seen to the histories. That of a lock which is free, or gone, stays for as
// long as there is room and something to show.
func (a *album) remember(queues map[string]*inspect.Queue, sight inspect.Sight) {
	if a.locks == nil {
		a.locks = make(map[string]*history)
	}
	for path, q := range queues {
		if a.locks[path] == nil && len(q.Contenders) > 0 {
			a.locks[path] = new(history)
		}
	}
	for _, e := range sight.Events {
		if h := a.locks[e.Path]; h != nil {
			h.unseen += e.Unseen
		}
	}
	for path, h := range a.locks {
		q := queues[path]
		h.see(q, sight.At)
		if q.Holder() == nil && (len(h.spans) == 0 || len(a.locks) > maxLocks) {
			delete(a.locks, path)
		}
	}
}

// see prolongs the last span, or begins one, if q is there.
func (h *history) see(q *inspect.Queue, now time.Time) {
	at, holder := now.UnixMilli(), q.Holder()
	if n := len(h.spans); n > 0 && h.spans[n-1].open {
		last := &h.spans[n-1]
		last.To = at
		last.open = holder != nil && holder.Node == last.node
	}
	if n := len(h.spans); holder != nil && (n == 0 || !h.spans[n-1].open) {
		h.spans = append(h.spans, span{Who: name(holder), From: at, To: at, node: holder.Node, open: true})
	}
	for len(h.spans) > maxSpans || len(h.spans) > 0 && h.spans[0].To < at-window.Milliseconds() {
		h.spans = h.spans[1:]
	}
}

func show(path string, q *inspect.Queue, h *history) lock {
	l := lock{Path: inspect.Clean(path), Waiters: []someone{}, Spans: h.spans, Unseen: h.unseen}
	if q == nil {
		return l
	}
	for i := range q.Contenders {
		c := &q.Contenders[i]
		s := someone{Who: name(c), Kind: c.KindName(), State: string(c.State), Age: c.AgeMS, Token: fmt.Sprint(c.Token)}
		if !c.Readable {
			s.Age = -1
		}
		switch {
		case i == 0:
			l.Holder = &s
		case i <= maxWaiters:
			l.Waiters = append(l.Waiters, s)
		}
	}
	l.Waiting = max(0, len(q.Contenders)-1)
	return l
}

// name is what a process is called, the same in all its nodes.
func name(c *inspect.Contender) string { return inspect.Clean(rawName(c)) }

func rawName(c *inspect.Contender) string {
	switch {
	case c.Label != "":
		return fmt.Sprintf("%s · %s:%d", c.Label, c.Host, c.PID)
	case c.PID != 0 || c.Host != "":
		return fmt.Sprintf("%s:%d", c.Host, c.PID)
	case strings.TrimSpace(c.Content) != "":
		return fmt.Sprintf("%q %s", c.Content, c.Session)
	}
	return strings.TrimSpace("unnamed " + c.Session)
}
