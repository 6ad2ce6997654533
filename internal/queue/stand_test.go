package queue

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A view is the same whether it comes from reading the queue for one contender or for all contenders.
func TestWhereContendersStand(t *testing.T) {
	common := second.Contender{Token: 7, Asked: true}
	who := func(id string, shared bool) second.Contender {
		c := common
		c.ID, c.Shared = id, shared
		return c
	}
	wants := func(id string, permits int) second.Contender {
		c := common
		c.ID, c.Of, c.Permits = id, 5, permits
		return c
	}
	type scene struct {
		queue []second.Contender
		want  []View
	}
	need.Each(t, map[string]scene{
		"for permits": {[]second.Contender{wants("a", 2), wants("b", 3), wants("c", 3), wants("d", 1)}, []View{
			{Has: true, Behind: true, Waiting: 2},
			{Has: true, Behind: true, Waiting: 2},
			{Behind: true, Waiting: 1},
			{Ahead: 1, Nearest: wants("c", 0), Waiting: 1, Free: -3},
		}},
		"for permits that are there": {[]second.Contender{wants("a", 2), wants("b", 1)}, []View{{Has: true}, {Has: true}}},
		"for a lock": {[]second.Contender{who("a", false), who("b", false), who("c", false)}, []View{
			{Has: true, Behind: true}, {Ahead: 1, Nearest: who("a", false), Behind: true}, {Ahead: 2, Nearest: who("b", false)},
		}},
		"to read and to write": {[]second.Contender{who("a", true), who("b", true), who("c", false), who("d", true), who("e", true)}, []View{
			{Has: true, Behind: true, Reader: true},
			{Has: true, Behind: true},
			{Ahead: 2, Nearest: who("b", true), Behind: true, Reader: true},
			{Ahead: 1, Nearest: who("c", false), Reader: true},
			{Ahead: 1, Nearest: who("c", false)},
		}},
	}, func(t *testing.T, s scene) {
		places := NewPlaces(s.queue)
		for own, want := range s.want {
			c := s.queue[own]
			want.ID, want.Known, want.Token, want.Asked, want.Reads, want.Of = c.ID, true, c.Token, c.Asked, c.Shared, c.Of
			one, all := View{ID: c.ID}, View{ID: c.ID}
			one.Stand(own, len(s.queue), func(i int) *second.Contender { return &s.queue[i] })
			places.Stand(&all)
			need.Equal(t, fmt.Sprintf("%d stands", own), one, want)
			need.Equal(t, fmt.Sprintf("%d stands, of all", own), all, want)
		}
		gone := View{ID: "none"}
		places.Stand(&gone)
		need.Equal(t, "one that does not queue", gone, View{ID: "none"})
	})
}

func TestWhoWaitsHasNoPermits(t *testing.T) {
	queue := []second.Contender{{Of: 5, Permits: 2}, {Of: 5, Permits: 3}, {Of: 5, Permits: 3}, {Of: 5, Permits: 1}}
	Waiting(queue)
	for i, want := range []int{2, 3, 0, 0} {
		need.Equal(t, fmt.Sprintf("permits of %d", i), queue[i].Permits, want)
	}
}
