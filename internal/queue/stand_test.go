package queue

import (
	"testing"

	"github.com/tierlock/tierlock/internal/second"
)

func TestWhereThoseStandWhoWantPermits(t *testing.T) {
	queue := []second.Contender{{Of: 5, Permits: 2}, {Of: 5, Permits: 3}, {Of: 5, Permits: 3}, {Of: 5, Permits: 1}}
	for own, want := range []View{
		{Known: true, Has: true, Behind: true, Waiting: 2},
		{Known: true, Has: true, Behind: true, Waiting: 2},
		{Known: true, Behind: true, Waiting: 1},
		{Known: true, Ahead: 1, Nearest: second.Contender{Of: 5}, Waiting: 1, Free: -3},
	} {
		var v View
		if v.Stand(own, len(queue), func(i int) *second.Contender { return &queue[i] }); v != want {
			t.Errorf("%d stands %+v, want %+v", own, v, want)
		}
	}
	Waiting(queue)
	for i, want := range []int{2, 3, 0, 0} {
		if queue[i].Permits != want {
			t.Errorf("%d has %d permits, want %d", i, queue[i].Permits, want)
		}
	}
}
