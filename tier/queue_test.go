package tier_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// lockNodes counts the nodes of each session below a lock path.
func lockNodes(v zktest.View, path string) map[int64]int {
	nodes := make(map[int64]int)
	for _, name := range v.Children(path) {
		_, stat, _ := v.Get(path + "/" + name)
		nodes[stat.EphemeralOwner]++
	}
	return nodes
}

// A thousand goroutines cost one node, one watch and one create.
func TestThousandWaitersCostOneNode(t *testing.T) { // I3
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		hold := acquire(t, process(t, srv).Mutex("/locks/a"))
		mu := process(t, srv).Mutex("/locks/a")
		srv.OnChange(func(v zktest.View, _ []zktest.Change) {
			for session, n := range lockNodes(v, "/locks/a") {
				if n > 1 {
					t.Errorf("session %#x has %d nodes, want 1", session, n)
				}
			}
		})
		var m meter
		srv.Intercept(m.note)
		before := srv.Watches()
		waiters := make([]*acquisition, 1000)
		for i := range waiters {
			waiters[i] = start(soon(t), mu)
		}
		synctest.Wait()
		if n := len(srv.Children("/locks/a")); n != 2 {
			t.Errorf("%d nodes of two processes, want 2", n)
		}
		if n := srv.Watches() - before; n > 2 {
			t.Errorf("%d watches for a thousand waiters, want those of node and predecessor", n)
		}
		if n := writes(m.take()); n != 1 {
			t.Errorf("%d writes for a thousand waiters, want 1", n)
		}
		release(t, hold)
		var wg sync.WaitGroup
		for _, w := range waiters {
			wg.Go(func() { release(t, w.granted(t)) })
		}
		wg.Wait()
		if n := len(srv.Children("/locks/a")); n != 0 {
			t.Errorf("%d nodes in the end, want 0", n)
		}
	})
}

func TestGoroutinesAreServedInOrderOfTheirCalls(t *testing.T) { // I6
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		locks := process(t, srv)
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
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var (
			mu     sync.Mutex
			served strings.Builder
			wg     sync.WaitGroup
		)
		first := process(t, srv)
		hold := acquire(t, first.Mutex("/locks/a"))
		names := []string{"a", "b", "c"}
		processes := []*tier.Registry{first, process(t, srv), process(t, srv)}
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
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		var waiters []*acquisition
		mutexes := make([]*tier.Mutex, 3)
		for i := range mutexes {
			mutexes[i] = process(t, srv, zklock.WithLabel(fmt.Sprint("p", i))).Mutex("/locks/a")
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
