package tier_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// Neither request waits for the answer to the other one, and the server gets them in this order.
func TestUncontendedAcquireIsACreateAndAListInOneFlight(t *testing.T) {
	zkMetered(t, func(t *testing.T, s *zktest.Server, m *zkMeter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithHandOff(0))
		release(t, acquire(t, mu)) // creates the parents
		m.take()
		asked := make(chan struct{})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Op == zktest.OpGetChildren2 && f.Stage == zktest.Request:
				close(asked)
			case f.Op == zktest.OpCreate && f.Stage == zktest.Reply:
				<-asked
			}
			return m.note(f)
		})
		hold := acquire(t, mu)
		if got, want := m.take(), []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2}; !slices.Equal(got, want) {
			t.Errorf("uncontended acquire: requests %v, want %v", got, want)
		}
		release(t, hold)
		if got := m.take(); !slices.Equal(got, []zktest.Op{zktest.OpDelete}) {
			t.Errorf("uncontended release: requests %v, want one delete", got)
		}
	})
}

// While no other process waits, turns within the process cost nothing.
func TestHandOffSendsNothing(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { release(t, acquire(t, mu)) })
		}
		synctest.Wait()
		m.take()
		release(t, hold)
		wg.Wait()
		synctest.Wait()
		got := m.take()
		if !slices.Equal(got, []queue.Op{queue.Leave}) {
			t.Errorf("1000 turns: commands %v, want one, to leave", got)
		}
	})
}

// A lingering node serves the next turn without a request, and another process ends it at once.
func TestLingerSendsNothingAndYieldsAtOnce(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(tier.WithLinger(time.Hour)), process()
		release(t, acquire(t, mu))
		synctest.Wait()
		m.take()
		token := acquire(t, mu)
		release(t, token)
		synctest.Wait()
		if got := m.take(); len(got) != 0 {
			t.Errorf("turn on a lingering node: requests %v, want none", got)
		}
		start := time.Now()
		hold := acquire(t, other)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("another process waited %v for a lingering node, want no time at all", waited)
		}
		if hold.Token() <= token.Token() {
			t.Errorf("token after lingering: %d, want more than %d", hold.Token(), token.Token())
		}
		release(t, hold)
	})
}

// A lingering node goes after its time, and nothing stays behind.
func TestLingerEnds(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithLinger(time.Minute))
		release(t, acquire(t, mu))
		<-time.After(30 * time.Second)
		release(t, acquire(t, mu)) // begins the minute anew
		<-time.After(59 * time.Second)
		if n := len(s.Queue("/locks/a")); n != 1 {
			t.Errorf("59 s after the last release: %d contenders, want the lingering one", n)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if n := len(s.Queue("/locks/a")); n != 0 {
			t.Errorf("61 s after the last release: %d contenders, want none", n)
		}
	})
}
