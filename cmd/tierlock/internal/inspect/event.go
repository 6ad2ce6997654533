package inspect

import (
	"slices"
	"time"
)

// These are the kinds of an [Event].
const (
	Held         = "held"     // the contender holds the lock
	Released     = "released" // the contender has released the lock, and other holders from the previous read still hold it
	Asked        = "asked"    // the contender was asked for the lock
	Queued       = "queued"   // the contender waits
	Left         = "left"     // the contender has left, and was not seen to hold the lock
	Free         = "free"     // the lock is free
	Taken        = "permits"  // the permits of a semaphore have changed, as the event shows
	Disconnected = "disconnected"
	Connected    = "connected"
	GracePeriod  = "grace-period" // the store grants no lock; the text says why
	Granting     = "granting"     // the grace period is over
)

// An Event is a difference between two reads of a queue. Programs may rely on its names in JSON.
type Event struct {
	Time      time.Time  `json:"time"` // the time of the read
	What      string     `json:"event"`
	Path      string     `json:"path,omitempty"`
	Contender *Contender `json:"contender,omitempty"`
	Semaphore *Semaphore `json:"semaphore,omitempty"`
	Waiting   int        `json:"waiting"`          // the number of contenders that do not hold the lock, or that wait for permits
	Unseen    int64      `json:"unseen,omitempty"` // the number of nodes that were created and deleted between the two reads
	Text      string     `json:"text,omitempty"`
}

// The function changes returns the differences between two reads of a path. If there was no previous read, before is nil.
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
	blocked := false // a contender ahead is still in the queue, so the contenders behind it have not had the lock
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
			unseen = 0 // the first event has reported them
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
	if p == nil && before.Semaphore != nil { // some stores show a semaphore only while it is in use
		p = &Semaphore{Permits: Permits{All: before.Semaphore.All}, Shares: []Share{}, Queue: []Contender{}}
	}
	if p != nil && before.Semaphore.differs(p) {
		events = append(events, Event{Time: after.At, What: Taken, Path: after.Path, Semaphore: p, Waiting: len(p.Queue)})
	}
	return events
}

// An id identifies a node. It distinguishes nodes of the same name if the path was deleted and created again.
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

// The method unseen returns how many nodes were created and deleted between the two reads, so that neither read shows them.
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
