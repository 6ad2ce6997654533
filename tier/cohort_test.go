package tier_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
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
		waiters := make([]*call[*tier.Hold], 1000)
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
		var waiters []*call[*tier.Hold]
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

// Who waits when the owner releases queues with the command that removes the
// owner, and has no turn before that is known to have happened.
func TestNodeGoesBeforeTheGateOpensForAWaiter(t *testing.T) { // I4
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		waiter := start(soon(t), mu).blocked(t)
		answerLate(s, queue.Enter, time.Second)
		released := begin(func() (bool, error) { return true, hold.Release() })
		waiter.blocked(t)
		released.blocked(t)
		if left := s.Queue("/locks/a"); len(left) != 1 || left[0].Token == hold.Token() {
			t.Errorf("contenders after the release: %v, want the waiter's", left)
		}
		began := time.Now()
		next := waiter.granted(t)
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the gate opened %v before the answer", time.Second-waited)
		}
		if next.Token() <= hold.Token() {
			t.Errorf("token of the next owner: got %d, want above %d", next.Token(), hold.Token())
		}
		released.granted(t)
		release(t, next)
	})
}

// Who comes while the node is being deleted waits for the end of that.
func TestNodeGoesBeforeTheGateOpensForALatecomer(t *testing.T) { // I3 I4
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		answerLate(s, queue.Leave, time.Second)
		released := begin(func() (bool, error) { return true, hold.Release() })
		synctest.Wait()
		latecomer := start(soon(t), mu).blocked(t)
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("nodes while the delete is not answered: got %v, want none", nodes)
		}
		began := time.Now()
		next := latecomer.granted(t)
		if waited := time.Since(began); waited < time.Second {
			t.Errorf("the gate opened %v before the answer", time.Second-waited)
		}
		released.granted(t)
		s.Script(nil)
		release(t, next)
	})
}

func TestAcquireWithDoneContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errChangedMind)
		var m meter
		s.Script(m.note)
		for _, take := range []func(context.Context) (*tier.Hold, error){mu.Acquire, mu.TryAcquire} {
			if _, err := take(ctx); !errors.Is(err, errChangedMind) {
				t.Errorf("Acquire with a done context: got %v, want %v", err, errChangedMind)
			}
		}
		synctest.Wait()
		if ops := m.take(); len(ops) != 0 {
			t.Errorf("sent %v, want nothing", ops)
		}
	})
}

func TestCancelAtTheGateChangesNothingForTheOthers(t *testing.T) { // I9
	for leaver := range 3 {
		bubble(t, func(t *testing.T, s *memory.Server) {
			mu := process(t, s).Mutex("/locks/a")
			hold := acquire(t, mu)
			ctx, cancel := context.WithCancelCause(t.Context())
			var stay []*call[*tier.Hold]
			var leave *call[*tier.Hold]
			for i := range 3 {
				if i == leaver {
					leave = start(ctx, mu).blocked(t)
				} else {
					stay = append(stay, start(soon(t), mu).blocked(t))
				}
			}
			cancel(errChangedMind)
			leave.cancelled(t)
			for _, w := range stay {
				w.blocked(t)
			}
			release(t, hold)
			release(t, stay[0].granted(t))
			release(t, stay[1].granted(t))
			if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
				t.Errorf("left behind: %v", nodes)
			}
		})
	}
}

// The place in the queue belongs to the process, not to the waiter that was first.
func TestWaiterThatGivesUpDoesNotCostTheProcessItsPlace(t *testing.T) { // I9
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		hold := acquire(t, holder)
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := start(ctx, mu).blocked(t)
		stay := start(soon(t), mu).blocked(t)
		before, err := holder.Contenders(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		cancel(errChangedMind)
		leave.cancelled(t)
		stay.blocked(t)
		after, err := holder.Contenders(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(before) != 2 || len(after) != 2 || before[1].ID != after[1].ID {
			t.Fatalf("queue before and after: %+v, %+v; want the same node", before, after)
		}
		release(t, hold)
		next := stay.granted(t)
		if next.Token() != before[1].Token {
			t.Errorf("token: got %d, want %d of the first node", next.Token(), before[1].Token)
		}
		release(t, next)
	})
}

// A stay is a run of turns of one process.
type stay struct {
	process    int
	begin, end time.Time
}

// crowd lets four goroutines in each of the processes take turns of one millisecond for
// some seconds of virtual time, and returns the stays, but for those at the edges.
func crowd(t *testing.T, mutexes ...*tier.Mutex) []stay {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var (
		stays []stay // guarded by the lock under test
		wg    sync.WaitGroup
	)
	for i, mu := range mutexes {
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					hold := acquire(t, mu)
					if n := len(stays); n == 0 || stays[n-1].process != i {
						stays = append(stays, stay{process: i, begin: time.Now()})
					}
					time.Sleep(time.Millisecond)
					stays[len(stays)-1].end = time.Now()
					release(t, hold)
				}
			})
		}
	}
	wg.Wait()
	return stays[len(stays)/2 : len(stays)-2*len(mutexes)]
}

// While others wait, a process keeps the lock for the budget and no longer, whatever it
// costs to give it away.
func TestBudgetIsKept(t *testing.T) { // I11
	for _, c := range []struct {
		name   string
		opts   []tier.Option
		budget time.Duration
	}{
		{"default", nil, 20 * time.Millisecond},
		{"short", []tier.Option{tier.WithHandOff(7 * time.Millisecond)}, 7 * time.Millisecond},
		{"shorter than a turn for each", []tier.Option{tier.WithHandOff(time.Millisecond)}, time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				s.Script(func(_ string, c queue.Command) (f memory.Fault) {
					if c.Op == queue.Enter {
						f.Before = 3 * time.Millisecond
					}
					return f
				})
				for _, s := range crowd(t, process(c.opts...), process(c.opts...), process(c.opts...)) {
					if d := s.end.Sub(s.begin); d < c.budget || d > c.budget+2*time.Millisecond {
						t.Errorf("process %d kept the lock for %v while others waited, want %v and at most two sections", s.process, d, c.budget)
					}
				}
			})
		})
	}
}

// startAll starts n acquisitions, in this order.
func startAll(ctx context.Context, t *testing.T, n int, mu *tier.Mutex) []*call[*tier.Hold] {
	t.Helper()
	var all []*call[*tier.Hold]
	for range n {
		all = append(all, start(ctx, mu).blocked(t))
	}
	return all
}

// By rounds, only who waited when the node came has a turn before another process: who
// gives up takes the turn along, and who comes later does not get it.
func TestLatecomersInheritNoTurns(t *testing.T) { // I6 I11
	for _, lingered := range []bool{false, true} {
		name := "at once"
		if lingered {
			name = "after lingering"
		}
		t.Run(name, func(t *testing.T) {
			metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				mu := process(tier.WithHandOff(0), tier.WithRounds(), tier.WithLinger(time.Hour))
				other := process()
				before := acquire(t, other)
				first := start(soon(t), mu).blocked(t)
				ctx, cancel := context.WithCancel(soon(t))
				impatient := startAll(ctx, t, 20, mu)
				release(t, before)
				hold := first.granted(t)
				cancel()
				for _, a := range impatient {
					<-a.done
				}
				if lingered {
					token := hold.Token()
					release(t, hold)
					if hold = acquire(t, mu); hold.Token() != token {
						t.Fatal("the node did not linger")
					}
				}
				latecomers := startAll(soon(t), t, 20, mu)
				elsewhere := start(soon(t), other).blocked(t)
				release(t, hold)
				for _, a := range latecomers {
					a.blocked(t)
				}
				release(t, elsewhere.granted(t))
				for _, a := range latecomers {
					release(t, a.granted(t))
				}
			})
		})
	}
}

// Those who stay keep their turns, in order, when others between them give up; and it
// does not matter whether an Acquire brought the node or a TryAcquire.
func TestWhoWaitedWhenTheNodeCameHasATurnBeforeAnotherProcess(t *testing.T) { // I6 I11
	for _, tried := range []bool{false, true} {
		name := "Acquire"
		if tried {
			name = "TryAcquire"
		}
		t.Run(name, func(t *testing.T) {
			metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				mu, other := process(tier.WithHandOff(0), tier.WithRounds()), process()
				var first *call[*tier.Hold]
				var before *tier.Hold
				var answer chan struct{}
				if tried {
					first, answer = hanging(soon(t), t, s, mu)
				} else {
					before = acquire(t, other)
					first = start(soon(t), mu).blocked(t)
				}
				ctx, cancel := context.WithCancel(soon(t))
				patient := startAll(soon(t), t, 2, mu)
				impatient := startAll(ctx, t, 5, mu)
				patient = append(patient, startAll(soon(t), t, 2, mu)...)
				if tried {
					close(answer)
				} else {
					release(t, before)
				}
				hold := first.granted(t)
				cancel()
				for _, a := range impatient {
					<-a.done
				}
				elsewhere := start(soon(t), other).blocked(t)
				latecomer := start(soon(t), mu).blocked(t)
				for _, a := range patient {
					release(t, hold)
					hold = a.granted(t)
				}
				elsewhere.blocked(t)
				release(t, hold)
				latecomer.blocked(t)
				release(t, elsewhere.granted(t))
				release(t, latecomer.granted(t))
			})
		})
	}
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

// A node that another process waits for goes with its release, not in the background after it.
func TestNodeThatOthersWaitForDoesNotLinger(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(tier.WithLinger(time.Hour)), process()
		hold := acquire(t, mu)
		next := start(soon(t), other).blocked(t)
		second.GrantOf(hold).Contested().C() // by somebody who has waited here and left
		synctest.Wait()
		answerLate(s, queue.Leave, time.Second)
		begun := time.Now()
		release(t, hold)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Release returned after %v, want with the answer after a second", took)
		}
		release(t, next.granted(t))
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

// A lingering node is not taken for a hold: by its own process never, and others are
// told that it may be one.
func TestContendersTellALingeringNodeFromAHold(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(tier.WithLinger(time.Minute)), process()
		look := func(mu *tier.Mutex) tier.Contender {
			queue, err := mu.Contenders(soon(t))
			if err != nil || len(queue) != 1 {
				t.Fatalf("Contenders: %+v, %v, want one", queue, err)
			}
			return queue[0]
		}
		for range 2 { // a node that lingered can be held again
			hold := acquire(t, mu)
			if c := look(mu); c.Lingering || c.Linger != time.Minute {
				t.Errorf("while held: lingering %t, for up to %v, want false, 1m", c.Lingering, c.Linger)
			}
			release(t, hold)
			if c := look(mu); !c.Lingering || c.Linger != time.Minute {
				t.Errorf("after the release: lingering %t, for up to %v, want true, 1m", c.Lingering, c.Linger)
			}
			if c := look(other); c.Lingering || c.Linger != time.Minute {
				t.Errorf("seen from another process: lingering %t, for up to %v, want false, 1m", c.Lingering, c.Linger)
			}
		}
	})
}

// Without a connection nobody can tell whether another process has come, and the lease may be about to end.
func TestNodeIsNeitherHandedOffNorKeptWhileTheConnectionIsDown(t *testing.T) {
	for _, waits := range []bool{true, false} {
		bubble(t, func(t *testing.T, s *memory.Server) {
			locks, p := dial(t, s, "", tier.WithHandOff(time.Hour), tier.WithLinger(time.Hour))
			mu := locks.Mutex("/locks/a")
			hold := acquire(t, mu)
			var waiter *call[*tier.Hold]
			if waits {
				waiter = start(soon(t), mu).blocked(t)
			}
			heal := cut(p)
			if !hold.Suspended() {
				t.Fatal("the lock is not suspended")
			}
			hold.Release()
			if waiter == nil {
				waiter = start(soon(t), mu)
			}
			waiter.blocked(t)
			heal()
			next := waiter.granted(t)
			if next.Token() == hold.Token() {
				t.Errorf("the next one got the node of the former owner; it waited before: %t", waits)
			}
			release(t, next)
		})
	}
}

// A waiter that was chosen a moment ago and leaves gives the node to the next one, but not a lost one.
func TestLostNodeIsNotOffered(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		waiters := []*call[*tier.Hold]{start(soon(t), mu).blocked(t), start(soon(t), mu).blocked(t)}
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		tier.Offer(hold)
		for _, w := range waiters {
			next := w.granted(t)
			if err := next.Err(); err != nil || next.Token() == hold.Token() {
				t.Errorf("granted with Err %v, token %d after %d; want a node that is not lost", err, next.Token(), hold.Token())
			}
			release(t, next)
		}
	})
}

// In the moment in which the lease ends, whoever wants the lock may come before those who are told of the end.
func TestLostNodeIsNotTakenBackIntoUse(t *testing.T) {
	for range 50 {
		metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
			mu := process(tier.WithLinger(time.Hour))
			other := tier.Sibling(mu, "/locks/b")
			lease := acquire(t, other)
			first := acquire(t, mu)
			release(t, first)
			thaw := s.Freeze()
			<-lease.Lost() // of both
			next := start(soon(t), mu)
			synctest.Wait()
			if !next.pending() && next.got != nil {
				t.Fatalf("a lost node was taken back: %v", next.got.Err())
			}
			thaw()
			release(t, next.granted(t))
		})
		if t.Failed() {
			return
		}
	}
}

// The delete of a node that is being given up has taken effect before anything else is done at its path.
func TestNobodyQueuesBehindTheOwnNodeThatIsBeingGivenUp(t *testing.T) { // I3, I4
	metered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		answer := make(chan struct{})
		s.Script(func(process string, c queue.Command) memory.Fault {
			m.note(process, c)
			if c.Op == queue.Leave {
				<-answer
			}
			return memory.Fault{}
		})
		m.take()
		tier.Offer(hold)
		synctest.Wait()
		next := start(soon(t), mu).blocked(t)
		if ops := m.take(); !slices.Equal(ops, []queue.Op{queue.Leave}) {
			t.Errorf("sent before the command to leave was answered: %v, want nothing but that", ops)
		}
		close(answer)
		release(t, next.granted(t))
	})
}

// A closed registry says so, whatever it was doing.
func TestClosedRegistryIsNotLocked(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process()
		hold := acquire(t, mu)
		tier.Close(mu)
		tier.Offer(hold)
		if _, err := mu.TryAcquire(soon(t)); !errors.Is(err, tier.ErrClosed) {
			t.Errorf("TryAcquire: got %v, want %v", err, tier.ErrClosed)
		}
	})
}
