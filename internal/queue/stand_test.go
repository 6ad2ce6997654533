package queue

import (
	"fmt"
	"testing"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/second"
)

func TestWhereThoseStandWhoWantPermits(t *testing.T) {
	queue := []second.Contender{{Of: 5, Permits: 2}, {Of: 5, Permits: 3}, {Of: 5, Permits: 3}, {Of: 5, Permits: 1}}
	for own, want := range []View{
		{Known: true, Of: 5, Has: true, Behind: true, Waiting: 2},
		{Known: true, Of: 5, Has: true, Behind: true, Waiting: 2},
		{Known: true, Of: 5, Behind: true, Waiting: 1},
		{Known: true, Of: 5, Ahead: 1, Nearest: second.Contender{Of: 5}, Waiting: 1, Free: -3},
	} {
		var v View
		v.Stand(own, len(queue), func(i int) *second.Contender { return &queue[i] })
		need.Equal(t, fmt.Sprintf("%d stands", own), v, want)
	}
	Waiting(queue)
	for i, want := range []int{2, 3, 0, 0} {
		need.Equal(t, fmt.Sprintf("permits of %d", i), queue[i].Permits, want)
	}
}
