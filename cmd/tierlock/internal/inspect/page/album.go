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

// The data for the page is bounded, however many locks there are and however often they change hands.
const (
	window     = 5 * time.Minute // of history
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

// A history records the holders of a lock, as far as they were seen.
type history struct {
	spans  []span // the last one may go on
	unseen int64

	looked int64           // when that was, in ms; 0 before the first look
	queued map[string]bool // who did not have it then, by node
}

// A span is a time in which each poll found the same holder of the lock, or the same process with permits.
type span struct {
	Who  string `json:"who"`
	From int64  `json:"from"` // in ms, as State.At
	To   int64  `json:"to"`

	node  string
	open  bool
	early bool // it may have begun after From: who had the lock at the first look may have waited before
}

type state struct {
	Store    string `json:"store"`
	Path     string `json:"path"`
	At       int64  `json:"at"` // of the last look, in ms
	Every    int64  `json:"every"`
	Window   int64  `json:"window"`
	Trouble  string `json:"trouble"`
	Grants   string `json:"grants"` // why there are none, "" if there are
	Complete bool   `json:"complete"`
	More     int    `json:"more"` // locks that are not shown
	Locks    []lock `json:"locks"`
}

type lock struct {
	Path    string    `json:"path"`
	Holding int       `json:"holding"`
	Holders []someone `json:"holders"` // the first of them: several if they read, or have permits
	Permits string    `json:"permits"` // of a semaphore, in words; "" if it is none
	All     int       `json:"all"`     // its permits; 0 if that is not known
	Waiting int       `json:"waiting"`
	Waiters []someone `json:"waiters"` // the first of them
	Spans   []span    `json:"spans"`
	Unseen  int64     `json:"unseen"`
}

type someone struct {
	Who     string `json:"who"`
	Kind    string `json:"kind"`
	State   string `json:"state"`
	Age     int64  `json:"age"`  // of the node, in ms; -1 if that is not known
	Held    int64  `json:"held"` // for so long, in ms, who has the lock
	AtMost  bool   `json:"at_most"`
	Token   string `json:"token"`
	For     string `json:"for"`     // the nearest contender that it waits for; "" if none
	Asked   bool   `json:"asked"`   // for the lock
	Permits string `json:"permits"` // that it has, in words; "" of a lock
	Count   int    `json:"count"`   // of them
}

// add adds a poll to the album and returns the new state of the page.
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
	text, _ := json.Marshal(s) // numbers and strings: cannot fail
	return text
}

// remember adds a poll to the histories. The history of a lock that is free, or gone, stays as long as there is room.
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

// see extends the spans of present holders, and begins those of new ones, if q exists. A holder that waited at the last poll has the lock
// from now on. One that was not there then has it since it was created, as far as that is known.
func (h *history) see(q *inspect.Queue, now time.Time) {
	at, holders := now.UnixMilli(), holdersOf(q)
	holders = holders[:min(len(holders), maxHolders)]
	seen := make(map[string]bool) // nodes with an open span
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

// holdersOf returns the holders of the lock, and then the processes that have permits, each process once.
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

// waitersOf returns the waiters, by the node that they will have as holders of the lock, or of permits.
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

// held returns for how long a node has had the lock, and whether that may be too much.
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
	names := make(map[string]string) // by node
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

// name returns the name of a process, which is the same for all its nodes.
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
