package queue

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/second"
)

// Both ways to look at a queue agree, for each contender.
func TestPlacesStandAsTheyDoOneByOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		of := random.IntN(2) * random.IntN(8)
		queue := make([]second.Contender, random.IntN(8))
		for i := range queue {
			c := &queue[i]
			c.ID, c.Token, c.Of, c.Asked = strconv.Itoa(i), int64(10+i), of, random.IntN(2) == 0
			if of > 0 {
				c.Permits = 1 + random.IntN(of)
			} else {
				c.Shared = random.IntN(2) == 0
			}
		}
		places := NewPlaces(queue)
		for i := range queue {
			one, all := View{ID: queue[i].ID}, View{ID: queue[i].ID}
			one.Stand(i, len(queue), func(j int) *second.Contender { return &queue[j] })
			places.Stand(&all)
			need.Equal(t, "how it stands", all, one)
		}
		gone := View{ID: "none"}
		places.Stand(&gone)
		need.Equal(t, "one that does not queue", gone, View{ID: "none"})
	}
}
