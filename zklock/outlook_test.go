package zklock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Those ahead come as mutexes, readers, writers and pairs, and leave in any order; a writer may leave a reader with its own
// number behind. Whoever is first by what it was told has nobody ahead, and whoever waits would be told of somebody.
func TestOutlookAgreesWithTheQueue(t *testing.T) {
	for seed := range uint64(5_000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		queue, groups := map[string]bool{}, [][]string{}
		sequence := 0
		for range rng.IntN(6) {
			id := fmt.Sprintf("_c_%d-", sequence)
			name := func(marker string) string {
				sequence++
				return fmt.Sprintf("%s%s%010d", id, marker, sequence-1)
			}
			var group []string
			switch rng.IntN(4) {
			case 0:
				group = []string{name("lock-")}
			case 1:
				group = []string{name("lock-"), name("__lock__")}
			case 2:
				group = []string{name("__READ__")}
			case 3:
				group = []string{name("__WRIT__")}
			}
			for _, n := range group {
				queue[n] = true
			}
			groups = append(groups, group)
		}
		own := fmt.Sprintf("_c_own-lock-%010d", sequence)
		list := []string{own}
		for n := range queue {
			list = append(list, n)
		}
		rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		s, err := stand(list, own)
		if err != nil {
			t.Fatal(err)
		}
		gone := func(name string) bool { return !queue[name] }
		for {
			alive := 0
			for _, n := range s.nearest {
				if n != "" && queue[n] {
					alive++
				}
			}
			switch s.after(gone) {
			case first:
				if len(queue) > 0 {
					t.Fatalf("seed %d: first of %q behind %v", seed, list, queue)
				}
			case waiting:
				if alive == 0 {
					t.Fatalf("seed %d: waits in %q for nobody, behind %v", seed, list, queue)
				}
			}
			if len(groups) == 0 {
				break
			}
			i := rng.IntN(len(groups))
			for _, n := range groups[i] {
				delete(queue, n)
				if strings.Contains(n, "__WRIT__") && rng.IntN(2) == 0 {
					reader := strings.Replace(n, "__WRIT__", "__READ__", 1)
					queue[reader] = true
					groups = append(groups, []string{reader})
				}
			}
			groups = slices.Delete(groups, i, i+1)
		}
	}
}
