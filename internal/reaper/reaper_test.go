package reaper_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/reaper"
)

type item struct {
	name  string
	tries int // that it has taken so far
}

// A store is where things are left.
type store struct {
	*reaper.Reaper[item]
	mu      sync.Mutex // guards the fields below
	stuck   map[string]bool
	removed []string
	tries   []time.Duration // since the start
	away    bool
	closed  bool

	tasks sync.WaitGroup
	ctx   context.Context
	end   context.CancelFunc
}

func newStore(t *testing.T) *store {
	s := &store{stuck: make(map[string]bool)}
	s.ctx, s.end = context.WithCancel(t.Context())
	start := time.Now()
	s.Reaper = reaper.New(reaper.Config[item]{
		Context: s.ctx,
		Spawn: func(f func()) bool {
			if s.closed {
				return false
			}
			s.tasks.Go(f)
			return true
		},
		Await: func(context.Context) error {
			if s.away {
				return errors.New("closed")
			}
			return nil
		},
		Remove: func(i *item) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			i.tries++
			s.tries = append(s.tries, time.Since(start))
			if s.stuck[i.name] {
				return false
			}
			s.removed = append(s.removed, i.name)
			return true
		},
	})
	return s
}

// free lets an item be removed.
func (s *store) free(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stuck, name)
}

func bubble(t *testing.T, f func(t *testing.T, s *store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		f(t, s)
		s.end()
		s.tasks.Wait()
	})
}

func TestWhatIsAddedIsRemovedAndTheGoroutineEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		for _, name := range []string{"a", "b"} {
			s.Add(item{name: name})
			if s.tasks.Wait(); s.Count() != 0 { // without the end of the store
				t.Errorf("%d left", s.Count())
			}
		}
		if !slices.Equal(s.removed, []string{"a", "b"}) {
			t.Errorf("removed %v", s.removed)
		}
	})
}

func TestItemIsTriedUntilItIsGoneAndRememberedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.stuck["a"] = true
		s.Add(item{name: "a"})
		time.Sleep(time.Minute)
		isA := func(i item) bool { return i.name == "a" }
		found, ok := s.Find(isA)
		if !ok || found.tries < 50 || s.Count() != 1 {
			t.Errorf("after a minute: %+v, %v, count %d; want some sixty tries", found, ok, s.Count())
		}
		s.free("a")
		if s.tasks.Wait(); s.Count() != 0 {
			t.Error("not removed")
		}
		if _, ok := s.Find(isA); ok {
			t.Error("found after it was removed")
		}
	})
}

// Else a node would stand in the way of everybody because another one cannot be deleted.
func TestNewItemDoesNotWaitForAsLongAsAnOldOneHasTo(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.stuck["old"], s.stuck["new"] = true, true
		s.Add(item{name: "old"})
		time.Sleep(time.Minute)
		s.Add(item{name: "new"})
		s.mu.Lock()
		before := len(s.tries)
		s.mu.Unlock()
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.tries) - before; n < 10 {
			t.Errorf("%d tries in 3 s, want the pace to begin anew", n)
		}
	})
}

func TestReaperEndsWithItsStore(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.stuck["a"] = true
		s.Add(item{name: "a"})
		time.Sleep(time.Second)
		s.end()
		s.tasks.Wait()
	})
	bubble(t, func(t *testing.T, s *store) {
		s.stuck["a"], s.away = true, true
		s.Add(item{name: "a"})
		s.tasks.Wait() // Await failed
	})
	bubble(t, func(t *testing.T, s *store) {
		s.closed = true
		s.Add(item{name: "a"})
		if synctest.Wait(); len(s.tries) != 0 {
			t.Error("tried on a closed store")
		}
	})
}

func TestRoomWaitsWhileTheReaperIsOverwhelmed(t *testing.T) {
	bubble(t, func(t *testing.T, s *store) {
		s.stuck["a"] = true
		for range 1023 {
			s.Add(item{name: "a"})
		}
		if err := s.Room(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Add(item{name: "a"})
		left := errors.New("left")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(left) })
		if err := s.Room(ctx); !errors.Is(err, left) {
			t.Errorf("Room: %v, want the cause", err)
		}
		time.AfterFunc(time.Minute, func() { s.free("a") })
		if err := s.Room(t.Context()); err != nil || s.Count() >= 1024 {
			t.Errorf("Room: %v with %d items", err, s.Count())
		}
		s.tasks.Wait()
	})
}
