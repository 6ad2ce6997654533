package memory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// Through the gate as well, answers are late or lost, and commands without an answer are executed once more at any time: never are
// more permits taken than there are, everybody gets some, and nothing is left.
func TestPermitsAreNeverMoreThanThereAre(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { takePermits(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func takePermits(t *testing.T, seed uint64) {
	const permits, processes, goroutines, turns = 5, 3, 4, 10
	var mu sync.Mutex // guards the generator
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	s := memory.NewServer()
	s.Script(func(string, queue.Command) (f memory.Fault) {
		f.Before, f.After = time.Duration(draw(5))*time.Millisecond, time.Duration(draw(5))*time.Millisecond
		f.Lost = draw(20) == 0
		if f.Lost && draw(2) == 0 {
			f.Again = time.Duration(draw(3000)) * time.Millisecond
		}
		return f
	})
	var taken atomic.Int64
	var all sync.WaitGroup
	var registries []*tier.Registry
	for i := range processes {
		r, err := tier.New(s.Dial(fmt.Sprint(i), 3*time.Second, nil).Tier)
		if err != nil {
			t.Fatal(err)
		}
		registries = append(registries, r)
		for range goroutines {
			all.Go(func() {
				for range turns {
					k := 1 + draw(permits)
					p, err := r.Semaphore("limit", permits).Acquire(t.Context(), k)
					if err != nil {
						t.Error(err)
						return
					}
					if n := taken.Add(int64(k)); n > permits {
						t.Errorf("%d of %d permits are taken", n, permits)
					}
					time.Sleep(time.Duration(draw(5)) * time.Millisecond)
					lost := p.Err()
					taken.Add(-int64(k))
					if err := p.Release(); err != nil && !(errors.Is(err, tier.ErrLost) && lost != nil) {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	all.Wait()
	time.Sleep(10 * time.Second)
	if left := s.Queue("permits of limit"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for _, r := range registries {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(time.Second) // for what is under way
}
