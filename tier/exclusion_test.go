package tier_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tierlock/tierlock/tier"
)

// A section counts who is in it, and what was done there. Its fields are atomic because
// the race detector does not see that a ZooKeeper orders them; the counter is
// nevertheless unprotected, being read and written in two steps.
type section struct {
	inside, counter, turns, token atomic.Int64
}

func (s *section) run(t *testing.T, hold *tier.Hold) {
	t.Helper()
	if n := s.inside.Add(1); n != 1 {
		t.Errorf("%d owners at a time, want 1", n)
	}
	if last := s.token.Swap(hold.Token()); last >= hold.Token() {
		t.Errorf("token: got %d after %d, want it to grow", hold.Token(), last)
	}
	n := s.counter.Load()
	runtime.Gosched()
	s.counter.Store(n + 1)
	s.turns.Add(1)
	s.inside.Add(-1)
}

func TestManyGoroutinesOfManyProcessesExcludeEachOther(t *testing.T) { // I1 I2 I8
	const processes, goroutines, duration = 3, 50, 2 * time.Second
	addr := realServer(t)
	paths := []string{"/hammer/a", "/hammer/b"}
	sections := make([]section, len(paths))
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var wg sync.WaitGroup
	turns := make([]atomic.Int64, processes)
	for p := range processes {
		locks := zkDial(t, addr)
		for g := range goroutines {
			which := g % len(paths)
			wg.Go(func() {
				mu := locks.Mutex(paths[which])
				for ctx.Err() == nil {
					hold, err := mu.Acquire(ctx)
					if err != nil {
						if ctx.Err() == nil {
							t.Errorf("Acquire: %v", err)
						}
						return
					}
					sections[which].run(t, hold)
					turns[p].Add(1)
					release(t, hold)
				}
			})
		}
	}
	wg.Wait()
	for i := range sections {
		s := &sections[i]
		if s.counter.Load() != s.turns.Load() {
			t.Errorf("%s: counter %d after %d turns", paths[i], s.counter.Load(), s.turns.Load())
		}
	}
	for p := range turns {
		if turns[p].Load() == 0 {
			t.Errorf("process %d never had the lock", p)
		}
	}
	observer := zkDial(t, addr)
	for _, path := range paths {
		awaitContenders(t, observer.Mutex(path), 0)
	}
}
