package inspect

import "time"

// What happened, as [Event] says it.
const (
	Held         = "held"   // by the contender
	Queued       = "queued" // the contender waits
	Left         = "left"   // the contender, without having been seen to hold
	Free         = "free"   // nobody holds the lock
	Disconnected = "disconnected"
	Connected    = "connected"
)

// An Event is a difference between two looks. Its names in JSON are for programs to rely on.
type Event struct {
	Time      time.Time  `json:"time"` // of the look
	What      string     `json:"event"`
	Path      string     `json:"path,omitempty"`
	Contender *Contender `json:"contender,omitempty"`
	Waiting   int        `json:"waiting"`          // contenders behind the holder
	Unseen    int64      `json:"unseen,omitempty"` // nodes that came and went between the looks
	Text      string     `json:"text,omitempty"`
}

// changes tells the differences between two looks at a path, of which the first may be nil.
func changes(before, after *Queue) []Event {
	var events []Event
	add := func(what string, c *Contender, unseen int64) {
		events = append(events, Event{
			Time: after.At, What: what, Path: after.Path, Contender: c, Waiting: max(0, len(after.Contenders)-1), Unseen: unseen,
		})
	}
	if before == nil {
		before = &Queue{born: after.born, Next: after.Next}
	}
	was, is := before.tokens(), after.tokens()
	for i := range before.Contenders {
		if c := &before.Contenders[i]; i > 0 && !is[c.id()] && !after.startedAfter(c) {
			add(Left, c, 0)
		}
	}
	former, holder := before.Holder(), after.Holder()
	switch {
	case holder == nil && former != nil:
		add(Free, nil, after.unseen(before))
	case holder != nil && (former == nil || former.id() != holder.id()):
		add(Held, holder, after.unseen(before))
	}
	for i := range after.Contenders {
		if c := &after.Contenders[i]; i > 0 && !was[c.id()] {
			add(Queued, c, 0)
		}
	}
	return events
}

// An id names a node for good: the path may be made anew, and names with it.
type id struct {
	node  string
	token int64
}

func (c *Contender) id() id { return id{c.Node, c.Token} }

func (q *Queue) tokens() map[id]bool {
	ids := make(map[id]bool)
	for i := range q.Contenders {
		ids[q.Contenders[i].id()] = true
	}
	return ids
}

// startedAfter reports whether the queue now begins behind c, which may then have had its turn.
func (q *Queue) startedAfter(c *Contender) bool {
	h := q.Holder()
	return h == nil || h.Sequence > c.Sequence
}

// unseen is how many nodes came and went since a look before.
func (q *Queue) unseen(before *Queue) int64 {
	was, made := before.tokens(), q.Next
	if q.born == before.born {
		made -= before.Next
	}
	for i := range q.Contenders {
		if c := &q.Contenders[i]; !was[c.id()] {
			made--
			if c.Pair != "" {
				made--
			}
		}
	}
	return max(0, made)
}
