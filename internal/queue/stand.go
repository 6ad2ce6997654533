package queue

import "github.com/tierlock/tierlock/internal/second"

// Waiting takes the permits from those of a queue who wait for them, where each has as many as it wants.
func Waiting(queue []second.Contender) {
	wanted := 0
	for i := range queue {
		if wanted += queue[i].Permits; wanted > queue[i].Of {
			queue[i].Permits = 0
		}
	}
}

// Stand completes how a contender stands that is at a place in its queue, where Permits are what each wants or has. Of a lock, only
// those count with which it cannot share it, and of permits those who wait: they have none, as they and all ahead want more than there
// are.
func (v *View) Stand(own, length int, at func(int) *second.Contender) {
	c := at(own)
	v.Known, v.Token, v.Reads, v.Asked, v.Of = true, c.Token, c.Shared, c.Asked, c.Of
	free := c.Of
	for i := range length {
		p := at(i)
		if i == own {
			v.Free = free
		}
		free -= p.Permits
		waits := free < 0
		excludes := waits || c.Of == 0 && (!c.Shared || !p.Shared)
		if waits && i != own {
			v.Waiting++
		}
		switch {
		case i < own && excludes:
			v.Ahead, v.Nearest = v.Ahead+1, *p
		case i > own && excludes:
			v.Behind = true
		}
	}
	v.Nearest.Permits = 0 // who waits has none
	if v.Has = v.Ahead == 0 && c.Permits <= v.Free; v.Has {
		v.Free = 0 // that matters to who waits
	}
	v.Reader = own+1 < length && at(own+1).Shared
}
