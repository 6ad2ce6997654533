package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/second"
)

// These constants limit the data of the page, however many locks there are, and however often their holders change.
const (
	window     = 5 * time.Minute // the length of the shown history
	maxLocks   = 200
	maxHolders = 30
	maxWaiters = 30
	maxSpans   = 300
)

// An album is the recent history of all locks.
type album struct {
	store string
	path  string
	every time.Duration
	locks map[string]*history
}

// A history records the holders of one lock that the polls have seen.
type history struct {
	spans  []span // only the last span may be open
	unseen int64

	looked int64           // the time of the last poll, in ms; 0 before the first poll
	queued map[string]bool // the nodes that were in the queue, but did not hold the lock, at the last poll
}

// A span is a time in which each poll has found the same holder of the lock, or the same process with permits.
type span struct {
	Who  string `json:"who"`
	From int64  `json:"from"` // in ms, like State.At
	To   int64  `json:"to"`

	node  string
	open  bool
	early bool // the hold may have begun after From, because the first poll does not show how long the holder waited
}

type state struct {
	Store    string `json:"store"`
	Path     string `json:"path"`
	At       int64  `json:"at"` // the time of the last poll, in ms
	Every    int64  `json:"every"`
	Window   int64  `json:"window"`
	Trouble  string `json:"trouble"`
	Grants   string `json:"grants"` // why the store grants no locks; "" if it grants locks
	Complete bool   `json:"complete"`
	More     int    `json:"more"` // the number of locks that are not shown
	Locks    []lock `json:"locks"`
}

type lock struct {
	Path    string    `json:"path"`
	Holding int       `json:"holding"`
	Holders []someone `json:"holders"` // the first holders; there are several if they read or have permits
	Permits string    `json:"permits"` // the permits of a semaphore as text; "" for a lock
	All     int       `json:"all"`     // the number of permits of the semaphore; 0 if it is not known
	Waiting int       `json:"waiting"`
	Waiters []someone `json:"waiters"` // the first waiters
	Spans   []span    `json:"spans"`
	Unseen  int64     `json:"unseen"`
}

type someone struct {
	Who     string `json:"who"`
	Kind    string `json:"kind"`
	State   string `json:"state"`
	Age     int64  `json:"age"`  // the age of the node, in ms; -1 if it is not known
	Held    int64  `json:"held"` // for how long the holder has held the lock, in ms
	AtMost  bool   `json:"at_most"`
	Token   string `json:"token"`
	For     string `json:"for"`     // the nearest contender for which this one waits; "" if there is none
	Asked   bool   `json:"asked"`   // another process has asked this one for the lock
	Permits string `json:"permits"` // the permits that the process has, as text; "" for a lock
	Count   int    `json:"count"`   // the number of these permits
}

// The method add adds a poll to the album. It returns the new state of the page.
func (a *album) add(sight inspect.Sight) []byte {
	queues := make(map[string]*inspect.Queue)
	for _, q := range sight.Queues {
		queues[q.Path] = q
	}
	if sight.Trouble == "" {
		a.remember(queues, sight)
	}
	s := state{
		Store: a.store, Path: second.Clean(a.path), At: sight.At.UnixMilli(), Every: a.every.Milliseconds(), Window: window.Milliseconds(),
		Trouble: second.Clean(sight.Trouble), Complete: sight.Complete, Locks: []lock{},
	}
	if sight.GracePeriod != nil {
		s.Grants = second.Clean(sight.GracePeriod.Error())
	}
	for _, path := range slices.Sorted(maps.Keys(a.locks)) {
		if len(s.Locks) == maxLocks {
			s.More = len(a.locks) - maxLocks
			break
		}
		s.Locks = append(s.Locks, show(path, queues[path], a.locks[path], s.At))
	}
	text, _ := json.Marshal(s) // cannot fail, because the state has only numbers and strings
	return text
}

// remember adds a poll to the histories. It keeps the history of a lock that is free or no longer exists, up to the limit of locks.
func (a *album) remember(queues map[string]*inspect.Queue, sight inspect.Sight) {
	if a.locks == nil {
		a.locks = make(map[string]*history)
	}
	for path, q := range queues {
		if a.locks[path] == nil && (len(q.Contenders) > 0 || q.Semaphore != nil) {
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
		if (q == nil || len(q.Contenders) == 0 && q.Semaphore == nil) && (len(h.spans) == 0 || len(a.locks) > maxLocks) {
			delete(a.locks, path)
		}
	}
}

// see extends the spans of the present holders, and begins spans for new holders. If q is nil, there are no holders. A new holder that
// waited at the last poll has held the lock since the present poll. If a new holder was not there at the last poll, the span begins with
// the creation of its node, if that time is known.
func (h *history) see(q *inspect.Queue, now time.Time) {
	at, holders := now.UnixMilli(), holdersOf(q)
	holders = holders[:min(len(holders), maxHolders)]
	seen := make(map[string]bool) // the nodes that have an open span
	for i := range h.spans {
		s := &h.spans[i]
		if !s.open {
			continue
		}
		s.To = at
		s.open = slices.ContainsFunc(holders, func(c *inspect.Contender) bool { return c.Node == s.node })
		seen[s.node] = s.open
	}
	for _, c := range holders {
		if !seen[c.Node] {
			s := span{Who: name(c), From: at, To: at, node: c.Node, open: true}
			if !h.queued[c.Node] && c.Aged() {
				s.From, s.early = max(at-c.AgeMS, h.looked), h.looked == 0
			}
			h.spans = append(h.spans, s)
		}
	}
	h.looked, h.queued = at, waitersOf(q)
	h.spans = slices.DeleteFunc(h.spans, func(s span) bool { return s.To < at-window.Milliseconds() })
	surplus := len(h.spans) - maxSpans
	h.spans = slices.DeleteFunc(h.spans, func(s span) bool {
		if surplus <= 0 || s.open {
			return false
		}
		surplus--
		return true
	})
}

// holdersOf returns the holders of the lock, followed by the processes that have permits. Each process appears once.
func holdersOf(q *inspect.Queue) []*inspect.Contender {
	holders := q.Holders()
	if q != nil && q.Semaphore != nil {
		for i := range q.Semaphore.Shares {
			c := q.Semaphore.Shares[i].Owner()
			c.Node = permitsOf(c)
			holders = append(holders, c)
		}
	}
	return holders
}

func permitsOf(c *inspect.Contender) string { return "permits of " + rawName(c) }

// waitersOf returns the waiters. The key is the node that a waiter will have as a holder of the lock or of permits.
func waitersOf(q *inspect.Queue) map[string]bool {
	waiters := make(map[string]bool)
	if q == nil {
		return waiters
	}
	for i := range q.Contenders {
		if c := &q.Contenders[i]; c.State != inspect.Holds {
			waiters[c.Node] = true
		}
	}
	if q.Semaphore != nil {
		for i := range q.Semaphore.Queue {
			waiters[permitsOf(&q.Semaphore.Queue[i])] = true
		}
	}
	return waiters
}

// The method held returns for how long a node has held the lock. If atMost is true, the real time may be shorter.
func (h *history) held(node string, now int64) (ms int64, atMost bool) {
	for _, s := range h.spans {
		if s.open && s.node == node {
			return now - s.From, s.early
		}
	}
	return 0, false
}

func show(path string, q *inspect.Queue, h *history, now int64) lock {
	l := lock{Path: second.Clean(path), Holders: []someone{}, Waiters: []someone{}, Spans: h.spans, Unseen: h.unseen}
	if q == nil {
		return l
	}
	contenders := q.Contenders
	l.Waiting = q.Waiting()
	l.Holding = len(q.Contenders) - l.Waiting
	if s := q.Semaphore; s != nil {
		l.Permits, l.All = s.Permits.String(), s.Permits.All
		l.Waiting += len(s.Queue)
		contenders = slices.Concat(contenders, s.Queue)
		l.Holding += len(s.Shares)
		for i := range s.Shares[:min(len(s.Shares), maxHolders)] {
			c, permits := s.Shares[i].Owner(), inspect.CountPermits(s.Shares[i].Count)
			has := someone{Who: name(c), State: string(c.State), Age: ageOf(c), Permits: permits, Count: s.Shares[i].Count}
			has.Held, has.AtMost = h.held(permitsOf(c), now)
			l.Holders = append(l.Holders, has)
		}
	}
	names := make(map[string]string) // the key is the node
	for i := range contenders {
		c := &contenders[i]
		names[c.Node] = name(c)
		s := someone{
			Who: names[c.Node], Kind: c.KindName(), State: string(c.State), Age: ageOf(c), Token: fmt.Sprint(c.Token),
			For: names[c.Behind], Asked: c.Asked,
		}
		switch {
		case c.State == inspect.Holds && len(l.Holders) < maxHolders:
			s.Held, s.AtMost = h.held(c.Node, now)
			l.Holders = append(l.Holders, s)
		case c.State != inspect.Holds && len(l.Waiters) < maxWaiters:
			l.Waiters = append(l.Waiters, s)
		}
	}
	return l
}

func ageOf(c *inspect.Contender) int64 {
	if !c.Aged() {
		return -1
	}
	return c.AgeMS
}

// The function name returns the name of a process. The name is the same for all nodes of the process.
func name(c *inspect.Contender) string { return second.Clean(rawName(c)) }

func rawName(c *inspect.Contender) string {
	switch {
	case c.Label != "":
		return fmt.Sprintf("%s · %s:%d", c.Label, c.Host, c.PID)
	case c.PID != 0 || c.Host != "":
		return fmt.Sprintf("%s:%d", c.Host, c.PID)
	case strings.TrimSpace(c.Content) != "":
		return fmt.Sprintf(`"%s" %s`, c.Content, c.Session)
	}
	return strings.TrimSpace("unnamed " + c.Session)
}
