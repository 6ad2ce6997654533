package tier_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// A thousand goroutines cost one contender and one command.
func TestThousandWaitersCostOneContender(t *testing.T) { // I3
	bubble(t, func(t *testing.T, s *memory.Server) {
		hold := acquire(t, named(t, s, "holder").Mutex("/locks/a"))
		mu := named(t, s, "other").Mutex("/locks/a")
		var m meter
		s.Script(func(process string, c queue.Command) memory.Fault {
			wantOneEach(t, s)
			return m.note(process, c)
		})
		waiters := make([]*acquisition, 1000)
		for i := range waiters {
			waiters[i] = start(soon(t), mu)
		}
		synctest.Wait()
		if n := len(s.Queue("/locks/a")); n != 2 {
			t.Errorf("%d contenders of two processes, want 2", n)
		}
		if ops := m.take(); !slices.Equal(ops, []queue.Op{queue.Enter}) {
			t.Errorf("commands for a thousand waiters: %v, want one", ops)
		}
		release(t, hold)
		var wg sync.WaitGroup
		for _, w := range waiters {
			wg.Go(func() { release(t, w.granted(t)) })
		}
		wg.Wait()
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("%d contenders in the end, want 0", n)
		}
	})
}

func TestGoroutinesAreServedInOrderOfTheirCalls(t *testing.T) { // I6
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		var waiters []*acquisition
		for range 20 {
			waiters = append(waiters, start(soon(t), locks.Mutex("/locks/a")).blocked(t))
		}
		for i, w := range waiters {
			release(t, hold)
			hold = w.granted(t)
			synctest.Wait()
			for j, later := range waiters[i+1:] {
				if !later.pending() {
					t.Fatalf("goroutine %d was served before %d", i+1+j, i+1)
				}
			}
		}
		release(t, hold)
	})
}

// Strict: a process that wants another turn queues for it behind the others, however
// many of its goroutines wait.
func TestProcessesAreServedInOrderOfTheirNodes(t *testing.T) { // I6
	bubble(t, func(t *testing.T, s *memory.Server) {
		var (
			mu     sync.Mutex
			served strings.Builder
			wg     sync.WaitGroup
		)
		first := process(t, s)
		hold := acquire(t, first.Mutex("/locks/a"))
		names := []string{"a", "b", "c"}
		processes := []*tier.Registry{first, process(t, s), process(t, s)}
		for i, locks := range processes {
			for range 4 {
				wg.Go(func() {
					hold := acquire(t, locks.Mutex("/locks/a"))
					mu.Lock()
					served.WriteString(names[i])
					mu.Unlock()
					release(t, hold)
				})
			}
			synctest.Wait()
		}
		release(t, hold)
		wg.Wait()
		if got, want := served.String(), strings.Repeat("bca", 4); got != want {
			t.Errorf("turns: got %s, want %s", got, want)
		}
	})
}

func TestTokensGrowAndContendersShowTheQueue(t *testing.T) { // I8
	bubble(t, func(t *testing.T, s *memory.Server) {
		var waiters []*acquisition
		mutexes := make([]*tier.Mutex, 3)
		for i := range mutexes {
			mutexes[i] = named(t, s, fmt.Sprint("p", i)).Mutex("/locks/a")
		}
		hold := acquire(t, mutexes[0])
		for _, mu := range mutexes[1:] {
			waiters = append(waiters, start(soon(t), mu).blocked(t))
		}
		contenders, err := mutexes[2].Contenders(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		var labels []string
		for _, c := range contenders {
			labels = append(labels, c.Label)
		}
		if !slices.Equal(labels, []string{"p0", "p1", "p2"}) {
			t.Errorf("contenders: got %v, want the holder and the queue", labels)
		}
		for i, w := range waiters {
			last := hold.Token()
			release(t, hold)
			if hold = w.granted(t); hold.Token() <= last || hold.Token() != contenders[i+1].Token {
				t.Errorf("token of owner %d: got %d, want %d, above %d", i+1, hold.Token(), contenders[i+1].Token, last)
			}
		}
		release(t, hold)
	})
}
