package zklock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A turnstile stands before the server and lets requests through one by one, so that a test decides in which order
// those of different sessions take effect.
type turnstile struct {
	mu      sync.Mutex // guards the field below
	waiting map[int64]chan struct{}
}

func (d *turnstile) hook(f *zktest.Frame) zktest.Action {
	if f.Stage == zktest.Request && !heartbeat(f) {
		pass := make(chan struct{})
		d.mu.Lock()
		d.waiting[f.Session] = pass
		d.mu.Unlock()
		<-pass
	}
	return zktest.Pass
}

// next lets through a request of one of the sessions that have any: that of the same as before, or, if deviate is set,
// of the one after it. It reports whether there was none, and whether there was a choice.
func (d *turnstile) next(last *int64, deviate bool) (none, choice bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sessions []int64
	for s := range d.waiting {
		sessions = append(sessions, s)
	}
	if len(sessions) == 0 {
		return true, false
	}
	slices.Sort(sessions)
	i, same := slices.BinarySearch(sessions, *last)
	if deviate && same {
		i++
	}
	*last = sessions[i%len(sessions)]
	close(d.waiting[*last])
	delete(d.waiting, *last)
	return false, len(sessions) > 1 && same
}

// TestWornPathInEveryInterleaving runs processes that take turns on a path about to wear out, with one order of their
// requests after the other: a process goes on until it has to wait, but for a few places, any few, where another one
// comes between.
func TestWornPathInEveryInterleaving(t *testing.T) {
	for _, tt := range []struct {
		number    int32 // of the first turn that counts
		processes int
		switches  int
	}{
		{wornFrom, 2, 3},     // all in turn find that the path is worn
		{wornFrom - 1, 2, 2}, // one is in the queue with a number that is not
		{wornFrom - 1, 3, 1},
	} {
		t.Run(fmt.Sprintf("%d from %d", tt.processes, tt.number), func(t *testing.T) {
			t.Parallel()
			runs := 0
			var explore func(at []int)
			explore = func(at []int) {
				choices := interleave(t, tt.number, tt.processes, at)
				if runs++; len(at) == tt.switches || t.Failed() {
					return
				}
				from := 0
				if len(at) > 0 {
					from = at[len(at)-1] + 1
				}
				for i := from; i < choices && !t.Failed(); i++ {
					explore(append(slices.Clone(at), i))
				}
			}
			explore(nil)
			t.Logf("%d interleavings", runs)
		})
	}
}

// interleave runs one order of requests, which deviates at these choices, and returns how many there were.
func interleave(t *testing.T, number int32, processes int, at []int) (choices int) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var all []process
		for range processes {
			all = append(all, start(t, s))
		}
		all[0].wear(t, s, number)
		taken, begun := numbers(s), time.Now()
		d := &turnstile{waiting: make(map[int64]chan struct{})}
		s.Intercept(d.hook)
		defer s.Intercept(nil)

		var left atomic.Int64
		work := oneAtATime(t)
		for _, p := range all {
			left.Add(1)
			go func() {
				defer left.Add(-1)
				if err := takeTurns(t.Context(), p.lock, work); err != nil {
					t.Error(err)
				}
			}()
		}
		var last int64
		for idle := 0; idle < 20; {
			synctest.Wait()
			none, choice := d.next(&last, slices.Contains(at, choices))
			switch {
			case none:
				idle++
				time.Sleep(time.Millisecond)
			case choice:
				choices++
				idle = 0
			default:
				idle = 0
			}
		}
		if left.Load() > 0 || time.Since(begun) > time.Second {
			t.Errorf("%d processes are not through after %v", left.Load(), time.Since(begun))
		}
		for _, p := range all {
			got := taken(p.session)
			worn := slices.DeleteFunc(slices.Clone(got), func(n int32) bool { return n < wornFrom })
			if len(worn) > 1 || got[len(got)-1] > 100 {
				t.Errorf("a process had the numbers %d", got)
			}
		}
		if wantEmpty(t, s); t.Failed() {
			t.Fatalf("switched at %v of %d", at, choices)
		}
	})
	return choices
}

// oneAtATime returns the work of an owner, which takes a while and finds out if somebody else is at it.
func oneAtATime(t *testing.T) func() {
	var owners atomic.Int64
	return func() {
		if n := owners.Add(1); n > 1 {
			t.Errorf("%d owners", n)
		}
		time.Sleep(time.Millisecond)
		owners.Add(-1)
	}
}

// takeTurns has the lock three times, and queues each time in another way.
func takeTurns(ctx context.Context, lock *zklock.Lock, work func()) error {
	n, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	work()
	if n, err = n.Requeue(ctx); err != nil {
		return err
	}
	work()
	if err := n.Release(); err != nil {
		return err
	}
	if n, err = lock.Acquire(ctx); err != nil {
		return err
	}
	work()
	return n.Release()
}

// One of two processes loses its connection, or ends, at any frame of its turns on a path that wears out.
func TestWornPathWhateverBefallsOneOfTwo(t *testing.T) {
	for name, trouble := range map[string]func(p process) zktest.Action{
		"the connection breaks": func(process) zktest.Action { return zktest.Cut },
		"the process ends": func(p process) zktest.Action {
			go p.Close()
			return zktest.Delay(10 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for nth := 1; befall(t, nth, trouble); nth++ {
			}
		})
	}
}

// befall brings about trouble at the nth frame of one of two processes. It reports false if there are less.
func befall(t *testing.T, nth int, trouble func(p process) zktest.Action) (struck bool) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom-1)
		var (
			mu     sync.Mutex // guards the fields below
			at     string
			frames int
		)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			mu.Lock()
			defer mu.Unlock()
			if f.Session != p.session || heartbeat(f) || at != "" {
				return zktest.Pass
			}
			if frames++; frames < nth {
				return zktest.Pass
			}
			at = fmt.Sprintf("%v %v %s", f.Op, f.Stage, f.Path)
			return trouble(p)
		})
		taken, begun, work := numbers(s), time.Now(), oneAtATime(t)
		var wg sync.WaitGroup
		for _, each := range []process{p, q} {
			wg.Go(func() {
				err := takeTurns(t.Context(), each.lock, work)
				if err != nil && each.Err() == nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d, got := time.Since(begun), taken(q.session); d > timeout || got[len(got)-1] > 100 {
			t.Errorf("took %v, the other process had the numbers %d", d, got)
		}
		time.Sleep(beat)
		if wantEmpty(t, s); q.Reaping() > 0 {
			t.Errorf("reaping %d", q.Reaping())
		}
		if struck = at != ""; t.Failed() {
			t.Fatalf("trouble at %s", at)
		}
	})
	return struck && !t.Failed()
}
