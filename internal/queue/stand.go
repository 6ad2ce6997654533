package queue

import (
	"sort"

	"github.com/tierlock/tierlock/internal/second"
)

// Waiting sets Permits to 0 for those contenders of a queue that wait. Before, each has in Permits the number that it wants.
func Waiting(queue []second.Contender) {
	wanted := 0
	for i := range queue {
		if wanted += queue[i].Permits; wanted > queue[i].Of {
			queue[i].Permits = 0
		}
	}
}

// sums are totals over a queue up to some place.
type sums struct {
	permits int // what each wants or has
	writers int
	writer  int // the place of the last one
}

func (s *sums) add(place int, c *second.Contender) {
	s.permits += c.Permits
	if !c.Shared {
		s.writers, s.writer = s.writers+1, place
	}
}

// Stand completes the view of the contender at index own of a queue. Permits of each contender in the queue are those that it wants or
// has.
func (v *View) Stand(own, length int, at func(int) *second.Contender) {
	var before, all sums
	first := length
	for i := range length {
		if i == own {
			before = all
		}
		if all.add(i, at(i)); first == length && all.permits > at(own).Of {
			first = i
		}
	}
	v.stand(own, length, at, before, all.writers, first)
}

// stand completes a view with the sums over the contenders ahead of its own, the number of writers, and the first place at which more
// permits are wanted than there are. For a lock, only contenders count with which its own cannot share it. For permits, only waiters count:
// they have none, as they and all contenders ahead of them want more than there are.
func (v *View) stand(own, length int, at func(int) *second.Contender, before sums, writers, first int) {
	c := at(own)
	v.Known, v.Token, v.Reads, v.Asked, v.Of = true, c.Token, c.Shared, c.Asked, c.Of
	v.Reader = own+1 < length && at(own+1).Shared
	v.Free = c.Of - before.permits
	nearest := own - 1
	switch {
	case c.Of > 0:
		v.Waiting = length - first
		if own >= first {
			v.Waiting--
			v.Ahead = own - first
		}
		v.Behind = max(own+1, first) < length
	case c.Shared:
		v.Ahead, nearest = before.writers, before.writer
		v.Behind = writers > before.writers
	default:
		v.Ahead = own
		v.Behind = own+1 < length
	}
	if v.Ahead > 0 {
		v.Nearest = *at(nearest)
		v.Nearest.Permits = 0 // who waits has none
	}
	if v.Has = v.Ahead == 0 && c.Permits <= v.Free; v.Has {
		v.Free = 0 // that matters to who waits
	}
}

// Places is a queue that is read once, to compute the views of any number of its contenders. [View.Stand], in contrast, walks the whole
// queue for each contender.
type Places struct {
	queue  []second.Contender // Permits are what each wants or has
	index  map[string]int     // by ID
	before []sums             // each place; the last ones are of all
}

// NewPlaces reads a queue.
func NewPlaces(queue []second.Contender) *Places {
	p := &Places{queue: queue, index: make(map[string]int, len(queue)), before: make([]sums, 1, len(queue)+1)}
	var all sums
	for i := range queue {
		p.index[queue[i].ID] = i
		all.add(i, &queue[i])
		p.before = append(p.before, all)
	}
	return p
}

// Stand completes a view as [View.Stand] does. If the contender is not in the queue, the view says so.
func (p *Places) Stand(v *View) {
	own, known := p.index[v.ID]
	if !known {
		return
	}
	at, length := func(i int) *second.Contender { return &p.queue[i] }, len(p.queue)
	first := sort.Search(length, func(i int) bool { return p.before[i+1].permits > p.queue[own].Of })
	v.stand(own, length, at, p.before[own], p.before[length].writers, first)
}
