package tier_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// A meter counts the requests that a server gets, except pings and handshakes.
type meter struct {
	mu  sync.Mutex
	ops []zktest.Op
}

func (m *meter) note(f *zktest.Frame) zktest.Action {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.Stage == zktest.Request && f.Op != zktest.OpPing && f.Op != zktest.OpConnect {
		m.ops = append(m.ops, f.Op)
	}
	return zktest.Pass
}

// take returns the requests since the last call.
func (m *meter) take() []zktest.Op {
	m.mu.Lock()
	defer m.mu.Unlock()
	ops := m.ops
	m.ops = nil
	return ops
}

func writes(ops []zktest.Op) (n int) {
	for _, op := range ops {
		if op == zktest.OpCreate || op == zktest.OpDelete || op == zktest.OpMulti {
			n++
		}
	}
	return n
}

// metered runs f in a bubble with a server, its meter, and a function that starts processes.
func metered(t *testing.T, f func(t *testing.T, s *zktest.Server, m *meter, process func(...tier.Option) *tier.Mutex)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.NewServer(zktest.Config{})
		defer s.Close()
		m := &meter{}
		s.Intercept(m.note)
		var open []*tier.Registry
		defer func() {
			for _, locks := range open {
				locks.Close()
			}
		}()
		f(t, s, m, func(opts ...tier.Option) *tier.Mutex {
			client, err := zklock.Dial(t.Context(), []string{"127.0.0.1"}, zklock.WithDialContext(s.DialContext))
			if err != nil {
				t.Fatal(err)
			}
			locks, err := tier.New(client, opts...)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, locks)
			return locks.Mutex("/locks/a")
		})
	})
}

// An uncontended acquire is two round trips: the create, then list and verify together.
func TestUncontendedAcquireIsTwoRoundTrips(t *testing.T) {
	metered(t, func(t *testing.T, s *zktest.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithHandOff(0))
		release(t, acquire(t, mu)) // creates the parents
		m.take()
		var asked atomic.Int32
		both := make(chan struct{})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpGetChildren2 || f.Op == zktest.OpGetData {
				if f.Stage == zktest.Request {
					if asked.Add(1) == 2 {
						close(both)
					}
				} else { // no answer before both were asked: one after the other, they would wait for ever
					<-both
				}
			}
			return m.note(f)
		})
		hold := acquire(t, mu)
		want := []zktest.Op{zktest.OpCreate, zktest.OpGetChildren2, zktest.OpGetData}
		got := m.take()
		slices.Sort(got[1:])
		slices.Sort(want[1:])
		if !slices.Equal(got, want) {
			t.Errorf("uncontended acquire: requests %v, want %v", got, want)
		}
		release(t, hold)
		if got := m.take(); !slices.Equal(got, []zktest.Op{zktest.OpDelete}) {
			t.Errorf("uncontended release: requests %v, want one delete", got)
		}
	})
}

// Who is second in line is granted by the event alone.
func TestSecondInLineIsGrantedWithoutAnotherRead(t *testing.T) {
	metered(t, func(t *testing.T, _ *zktest.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		first, second := process(tier.WithHandOff(0)), process(tier.WithHandOff(0))
		hold := acquire(t, first)
		granted := make(chan *tier.Hold)
		go func() { granted <- acquire(t, second) }()
		synctest.Wait()
		m.take()
		release(t, hold)
		next := <-granted
		if got := m.take(); !slices.Equal(got, []zktest.Op{zktest.OpDelete}) {
			t.Errorf("hand-over: requests %v, want the holder's delete only", got)
		}
		release(t, next)
	})
}

// A release with goroutines waiting is one write, which also queues for them.
func TestHandOverBetweenProcessesIsOneWrite(t *testing.T) {
	metered(t, func(t *testing.T, _ *zktest.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		const turns = 20
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 2 {
			mu := process(tier.WithHandOff(0))
			release(t, acquire(t, mu))
			for range 4 {
				wg.Go(func() {
					<-start
					for range turns {
						release(t, acquire(t, mu))
					}
				})
			}
		}
		m.take()
		close(start)
		wg.Wait()
		total := 2 * 4 * turns
		// Where a process has nobody left to queue for, the node is deleted and later created: two.
		if got := writes(m.take()); got > total*5/4 {
			t.Errorf("%d strict turns: %d writes, want one each", total, got)
		}
	})
}

// While no other process waits, turns within the process cost no request, save for one look at the queue.
func TestHandOffSendsNothing(t *testing.T) {
	metered(t, func(t *testing.T, _ *zktest.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
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
		if writes(got) != 1 || len(got) > 2 {
			t.Errorf("1000 turns: requests %v, want one look at the queue and one delete", got)
		}
	})
}

// A lingering node serves the next turn without a request, and another process ends it at once.
func TestLingerSendsNothingAndYieldsAtOnce(t *testing.T) {
	metered(t, func(t *testing.T, _ *zktest.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
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
	metered(t, func(t *testing.T, s *zktest.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithLinger(time.Minute))
		release(t, acquire(t, mu))
		<-time.After(30 * time.Second)
		release(t, acquire(t, mu)) // begins the minute anew
		<-time.After(59 * time.Second)
		if n := len(s.Children("/locks/a")); n != 1 {
			t.Errorf("59 s after the last release: %d nodes, want the lingering one", n)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if n := len(s.Children("/locks/a")); n != 0 {
			t.Errorf("61 s after the last release: %d nodes, want none", n)
		}
	})
}
