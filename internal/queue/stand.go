package queue

import (
	"sort"

	"github.com/tierlock/tierlock/internal/second"
)

// Waiting sets Permits to 0 in those contenders of a queue that wait. Before the call, Permits is the number that a contender wants or has.
func Waiting(queue []second.Contender) {
	wanted := 0
	for i := range queue {
		if wanted += queue[i].Permits; wanted > queue[i].Of {
			queue[i].Permits = 0
		}
	}
}

// sums has totals over the contenders of a queue that are ahead of a place.
type sums struct {
	permits int // that these contenders want or have
	writers int
	writer  int // the index of the last writer
}

func (s *sums) add(place int, c *second.Contender) {
	s.permits += c.Permits
	if !c.Shared {
		s.writers, s.writer = s.writers+1, place
	}
}

// Stand computes the view of the contender at index own of a queue. at returns a contender by its index; its Permits is the number that it
// wants or has.
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

// stand computes the view of the contender at index own. before has the sums over the contenders ahead of it, and writers is the number of
// writers in the queue. first is the index of the first waiter for permits: it and the contenders ahead want more permits than there are.
//
// For a lock, Ahead counts only the contenders with which this one cannot share the lock. For permits, Ahead counts only waiters.
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
		v.Nearest.Permits = 0 // a waiter has no permits yet
	}
	if v.Has = v.Ahead == 0 && c.Permits <= v.Free; v.Has {
		v.Free = 0 // only waiters need it
	}
}

// Places has the contenders of a queue and the sums up to each of them. It computes the views of many contenders after one pass over the
// queue. [View.Stand], in contrast, walks the whole queue for each contender.
type Places struct {
	queue  []second.Contender // Permits is the number that a contender wants or has
	index  map[string]int     // by ID
	before []sums             // by index, over the contenders ahead; the last element covers all contenders
}

// NewPlaces computes the sums over a queue.
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

// Stand computes the view of the contender with the ID in v, as [View.Stand] does. If it is not in the queue, Stand changes nothing.
func (p *Places) Stand(v *View) {
	own, known := p.index[v.ID]
	if !known {
		return
	}
	at, length := func(i int) *second.Contender { return &p.queue[i] }, len(p.queue)
	first := sort.Search(length, func(i int) bool { return p.before[i+1].permits > p.queue[own].Of })
	v.stand(own, length, at, p.before[own], p.before[length].writers, first)
}
