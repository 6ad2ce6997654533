package evidence

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/rule"
)

// inTurn enters sections with the given weights one after the other, each from a register of its own, and ends none of them. It returns
// the sections, and whether the last one overlapped.
func inTurn(t *testing.T, r rule.Rule, how Judging, weights ...int64) (all []Section, overlap bool) {
	t.Helper()
	dir := t.TempDir()
	for _, weight := range weights {
		register := need.Get(NewRegister(dir, 0, r, how))(t)
		s := need.Get(register.Enter(weight))(t)
		all, overlap = append(all, s), s.Overlap
	}
	return all, overlap
}

func TestWhoFindsNoRoomOverlaps(t *testing.T) {
	const all = oracle.Everybody
	rw, three := rule.ReadersWriter(0.9), rule.Permits(3, 3)
	bothWays(t, func(t *testing.T, how Judging) {
		type row struct {
			rule   rule.Rule
			inside []int64
			want   bool
		}
		need.Each(t, map[string]row{
			"readers":                  {rw, []int64{1, 1, 1, 1}, false},
			"a writer beside readers":  {rw, []int64{1, 1, all}, true},
			"a reader beside a writer": {rw, []int64{all, 1}, true},
			"two writers":              {rw, []int64{all, all}, true},
			"three permits of three":   {three, []int64{1, 1, 1}, false},
			"four of three":            {three, []int64{1, 1, 1, 1}, true},
			"three at once":            {three, []int64{3}, false},
			"two and one":              {three, []int64{2, 1}, false},
			"two and two":              {three, []int64{2, 2}, true},
			"one beside three":         {three, []int64{3, 1}, true},
		}, func(t *testing.T, test row) {
			inside, overlap := inTurn(t, test.rule, how, test.inside...)
			need.Equal(t, "overlap", overlap, test.want)
			for _, s := range inside {
				need.OK(t, s.Abandon())
			}
			again, err := inside[0].register.Enter(test.inside[0])
			need.WantErr(t, "when all have left", err, nil)
			need.That(t, "overlap when all have left", !again.Overlap)
		})
	})
}

func TestTheDeadTakeNoPermits(t *testing.T) {
	inside, _ := inTurn(t, rule.Permits(2, 1), ByKernel, 1, 1)
	need.OK(t, inside[0].latch.close()) // the kernel does the same when a process is killed
	for _, want := range []bool{false, true} {
		s, err := inside[1].register.Enter(1)
		need.WantErr(t, "beside one that lives", err, nil)
		need.Equal(t, "overlap beside one that lives", s.Overlap, want)
	}
}

func TestReadersSeeAWrite(t *testing.T) {
	bothWays(t, func(t *testing.T, how Judging) {
		inside, _ := inTurn(t, rule.ReadersWriter(0.9), how, 1, 1, oracle.Everybody)
		if _, torn, err := inside[0].Leave(0, 1); err != nil || torn {
			t.Errorf("before the write: torn %t, %v", torn, err)
		}
		if _, torn, err := inside[2].Leave(0, 3); err != nil || torn {
			t.Errorf("the writer itself: torn %t, %v", torn, err)
		}
		if _, torn, err := inside[1].Leave(0, 2); err != nil || !torn {
			t.Errorf("after the write: torn %t, %v", torn, err)
		}
	})
}

func TestTokens(t *testing.T) {
	const read, write = 1, oracle.Everybody
	type step struct{ weight, token, process int64 }
	type row struct {
		steps []step
		want  bool // the token of the last step is a regression
	}
	need.Each(t, map[string]row{
		"grows":                                      {[]step{{write, 5, 1}, {write, 6, 2}}, false},
		"stays in one process":                       {[]step{{write, 5, 1}, {write, 5, 1}}, false},
		"stays in another process":                   {[]step{{write, 5, 1}, {write, 5, 2}}, true},
		"falls in one process":                       {[]step{{write, 5, 1}, {write, 4, 1}}, true},
		"falls in another process":                   {[]step{{write, 5, 1}, {write, 4, 2}}, true},
		"falls below an earlier one":                 {[]step{{write, 5, 1}, {write, 3, 2}, {write, 4, 2}}, true},
		"none":                                       {[]step{{write, 5, 1}, {write, 0, 2}}, false},
		"a reader after a writer":                    {[]step{{write, 5, 1}, {read, 6, 2}}, false},
		"readers in any order":                       {[]step{{write, 5, 1}, {read, 7, 2}, {read, 6, 3}}, false},
		"a reader in the writer's process":           {[]step{{write, 5, 1}, {read, 5, 1}, {write, 5, 1}}, false},
		"a reader with the writer's token elsewhere": {[]step{{write, 5, 1}, {read, 5, 2}}, true},
		"a reader before the writer":                 {[]step{{write, 5, 1}, {read, 4, 2}}, true},
		"a writer before a reader":                   {[]step{{read, 6, 2}, {write, 5, 1}}, true},
		"none, of a reader and a writer":             {[]step{{write, 5, 1}, {read, 0, 2}, {write, 0, 2}}, false},
	}, func(t *testing.T, test row) {
		r := need.Get(NewRegister(t.TempDir(), 0, rule.ReadersWriter(0.9), ByCount))(t)
		var got bool
		for _, s := range test.steps {
			section := need.Get(r.Enter(s.weight))(t)
			got = leave(t, section, s.token, s.process)
		}
		need.Equal(t, fmt.Sprintf("regression after %v", test.steps), got, test.want)
	})
}

// A section that a correct semaphore admits never overlaps, even if other sections end at the same time.
func TestRoomIsFoundWhileOthersLeave(t *testing.T) {
	const goroutines, turns = 16, 300
	r := rule.Permits(6, 3)
	dir := t.TempDir()
	var mu sync.Mutex
	left, changed := int64(r.Room), sync.NewCond(&mu)
	var all sync.WaitGroup
	for i := range goroutines {
		register := need.Get(NewRegister(dir, 0, r, ByKernel))(t)
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range turns {
				weight := r.Draw(random)
				mu.Lock()
				for left < weight {
					changed.Wait()
				}
				left -= weight
				mu.Unlock()
				s, err := register.Enter(weight)
				need.WantErr(t, fmt.Sprintf("a weight of %d", weight), err, nil)
				need.That(t, fmt.Sprintf("no room for %d", weight), !s.Overlap)
				need.WantErr(t, "Abandon", s.Abandon(), nil)
				mu.Lock()
				left += weight
				changed.Broadcast()
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
