package queue

import (
	"sort"

	"github.com/tierlock/tierlock/internal/second"
)

// Places is a queue that is read once to tell how any number of its contenders stand. [View.Stand] looks at the whole queue for each.
type Places struct {
	queue   []second.Contender // Permits are what each wants or has
	index   map[string]int     // by ID
	sums    []int              // of Permits, up to and with each
	writers []int              // how many there are before each
	writer  []int              // the last one before each, -1 if there is none
}

// NewPlaces reads a queue.
func NewPlaces(queue []second.Contender) *Places {
	p := &Places{queue: queue, index: make(map[string]int, len(queue))}
	sum, writers, writer := 0, 0, -1
	for i := range queue {
		c := &queue[i]
		sum += c.Permits
		p.index[c.ID] = i
		p.sums, p.writers, p.writer = append(p.sums, sum), append(p.writers, writers), append(p.writer, writer)
		if !c.Shared {
			writers, writer = writers+1, i
		}
	}
	p.writers = append(p.writers, writers)
	return p
}

// Stand completes how a contender stands as [View.Stand] does. It is not known if it does not queue.
func (p *Places) Stand(v *View) {
	i, known := p.index[v.ID]
	if !known {
		return
	}
	c, length := &p.queue[i], len(p.queue)
	v.Known, v.Token, v.Reads, v.Asked, v.Of = true, c.Token, c.Shared, c.Asked, c.Of
	v.Reader = i+1 < length && p.queue[i+1].Shared
	v.Free = c.Of + c.Permits - p.sums[i]
	first := sort.SearchInts(p.sums, c.Of+1) // who waits for permits: those from there on
	nearest := -1
	switch {
	case c.Of > 0:
		v.Waiting = length - first
		if i >= first {
			v.Waiting--
			v.Ahead, nearest = i-first, i-1
		}
		v.Behind = max(i+1, first) < length
	case c.Shared:
		v.Ahead, nearest = p.writers[i], p.writer[i]
		v.Behind = p.writers[length] > p.writers[i]
	default:
		v.Ahead, nearest = i, i-1
		v.Behind = i+1 < length
	}
	if v.Ahead > 0 {
		v.Nearest = p.queue[nearest]
		v.Nearest.Permits = 0 // who waits has none
	}
	if v.Has = v.Ahead == 0 && c.Permits <= v.Free; v.Has {
		v.Free = 0 // that matters to who waits
	}
}
