package inspect

import (
	"slices"
	"time"
)

// These are the kinds of an [Event].
const (
	Held         = "held"     // by the contender
	Released     = "released" // by the contender, while others that were there hold the lock
	Asked        = "asked"    // the contender, for the lock
	Queued       = "queued"   // the contender waits
	Left         = "left"     // the contender, without having been seen to hold
	Free         = "free"     // the lock is free
	Taken        = "permits"  // of a semaphore, as the event says
	Disconnected = "disconnected"
	Connected    = "connected"
	GracePeriod  = "grace-period" // no lock is granted, for the reason in the text
	Granting     = "granting"     // the grace period is over
)

// An Event is a difference between two reads of a queue. Programs may rely on its names in JSON.
type Event struct {
	Time      time.Time  `json:"time"` // of the look
	What      string     `json:"event"`
	Path      string     `json:"path,omitempty"`
	Contender *Contender `json:"contender,omitempty"`
	Semaphore *Semaphore `json:"semaphore,omitempty"`
	Waiting   int        `json:"waiting"`          // contenders that do not hold the lock, or that wait for permits
	Unseen    int64      `json:"unseen,omitempty"` // nodes that came and went between the looks
	Text      string     `json:"text,omitempty"`
}

// changes returns the differences between two reads of a path. The first one may be nil.
func changes(before, after *Queue) []Event {
	var events []Event
	add := func(what string, c *Contender, unseen int64) {
		events = append(events, Event{
			Time: after.At, What: what, Path: after.Path, Contender: c, Waiting: after.Waiting(), Unseen: unseen,
		})
	}
	if before == nil {
		before = &Queue{Born: after.Born, Next: after.Next}
	}
	was, is := before.states(), after.states()
	kept := slices.ContainsFunc(after.Holders(), func(c *Contender) bool { return was[c.id()] == Holds })
	blocked := false // a contender ahead is still there: those behind have not had the lock
	for i := range before.Contenders {
		switch c := &before.Contenders[i]; {
		case is[c.id()] != "":
			blocked = true
		case c.State == Holds && kept:
			add(Released, c, 0)
		case c.State != Holds && blocked:
			add(Left, c, 0)
		}
	}
	unseen := after.unseen(before)
	if len(is) == 0 && len(was) > 0 {
		add(Free, nil, unseen)
	}
	for _, c := range after.Holders() {
		if was[c.id()] != Holds {
			add(Held, c, unseen)
			unseen = 0 // told
		}
	}
	asked := before.asked()
	for i := range after.Contenders {
		c := &after.Contenders[i]
		if c.State != Holds && was[c.id()] == "" {
			add(Queued, c, 0)
		}
		if c.Asked && !asked[c.id()] {
			add(Asked, c, 0)
		}
	}
	p := after.Semaphore
	if p == nil && before.Semaphore != nil { // where it is known only while the semaphore is in use
		p = &Semaphore{Permits: Permits{All: before.Semaphore.All}, Shares: []Share{}, Queue: []Contender{}}
	}
	if p != nil && before.Semaphore.differs(p) {
		events = append(events, Event{Time: after.At, What: Taken, Path: after.Path, Semaphore: p, Waiting: len(p.Queue)})
	}
	return events
}

// An id identifies a node even if its path is deleted and created again, with the same names.
type id struct {
	node  string
	token int64
}

func (c *Contender) id() id { return id{c.Node, c.Token} }

func (q *Queue) states() map[id]State {
	states := make(map[id]State)
	for i := range q.Contenders {
		states[q.Contenders[i].id()] = q.Contenders[i].State
	}
	return states
}

func (q *Queue) asked() map[id]bool {
	asked := make(map[id]bool)
	for i := range q.Contenders {
		asked[q.Contenders[i].id()] = q.Contenders[i].Asked
	}
	return asked
}

// unseen returns how many nodes were created and deleted since the previous read without being seen.
func (q *Queue) unseen(before *Queue) int64 {
	was, made := before.states(), q.Next
	if q.Born == before.Born {
		made -= before.Next
	}
	for i := range q.Contenders {
		if c := &q.Contenders[i]; was[c.id()] == "" {
			made--
			if c.Pair != "" {
				made--
			}
		}
	}
	return max(0, made)
}
