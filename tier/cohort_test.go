package tier_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// If goroutines wait when the owner releases the lock, a requeue removes the owner's contender and enters a new one in the same command. A
// goroutine that arrives later queues after the removal. In both cases, no goroutine gets the lock before the process knows that the
// removal was executed.
func TestNodeGoesBeforeTheGateOpens(t *testing.T) { // I3 I4
	each(t, map[string]bool{"for a waiter": true, "for a latecomer": false}, func(t *testing.T, s *memory.Server, waits bool) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		var waiter *call[*tier.Hold]
		answerLate(s, queue.Leave, time.Second)
		if waits {
			answerLate(s, queue.Enter, time.Second)
			waiter = start(soon(t), mu).blocked(t)
		}
		began := time.Now()
		released := begin(func() (bool, error) { return true, hold.Release() }).blocked(t)
		if !waits {
			waiter = start(soon(t), mu).blocked(t)
		}
		waiter.blocked(t)
		for _, left := range s.Queue("/locks/a") {
			need.That(t, "the contender is there while the release is not answered", left.Token != hold.Token())
		}
		next := waiter.granted(t)
		need.AtLeast(t, "until the gate opens", time.Since(began), time.Second)
		need.AtLeast(t, "the token of the next owner", next.Token(), hold.Token()+1)
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
			wantErr(t, "Acquire with a done context", errOf(take(ctx)), errChangedMind)
		}
		synctest.Wait()
		need.Empty(t, "sent", m.take())
	})
}

// The place in the queue of the store belongs to the process. The process keeps its place even if the goroutine that queued first gives up.
func TestWaiterThatGivesUpDoesNotCostTheProcessItsPlace(t *testing.T) { // I9
	bubble(t, func(t *testing.T, s *memory.Server) {
		holder, mu := process(t, s).Mutex("/locks/a"), process(t, s).Mutex("/locks/a")
		hold := acquire(t, holder)
		ctx, cancel := context.WithCancelCause(t.Context())
		leave := start(ctx, mu).blocked(t)
		stay := start(soon(t), mu).blocked(t)
		before := need.Get(holder.Contenders(soon(t)))(t)
		cancel(errChangedMind)
		leave.cancelled(t)
		stay.blocked(t)
		after := need.Get(holder.Contenders(soon(t)))(t)
		need.Must(t, fmt.Sprintf("queue before and after: %+v, %+v; want the same node", before, after),
			len(before) == 2 && len(after) == 2 && before[1].ID == after[1].ID)
		release(t, hold)
		next := stay.granted(t)
		need.Equal(t, "the token, of the first node", next.Token(), before[1].Token)
		release(t, next)
	})
}

// startAll starts n acquisitions, one after the other.
func startAll(ctx context.Context, t *testing.T, n int, mu *tier.Mutex) []*call[*tier.Hold] {
	t.Helper()
	return times(n, func() *call[*tier.Hold] { return start(ctx, mu).blocked(t) })
}

// With rounds, all goroutines that waited when the process got the lock are served, in order, before another process. It makes no
// difference whether an Acquire or a TryAcquire got the lock. If one of these waiters gives up, no goroutine that came later gets its turn
// instead. The same holds after the process has kept the lock idle, and one of its goroutines has taken the lock again.
func TestWhoWaitedWhenTheNodeCameHasATurnBeforeAnotherProcess(t *testing.T) { // I6 I11
	for _, way := range []string{"Acquire", "TryAcquire", "lingered"} {
		t.Run(way, func(t *testing.T) {
			metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
				mu, other := process(tier.WithStrictOrder(), tier.WithRounds(), tier.WithLinger(time.Hour)), process()
				var first *call[*tier.Hold]
				var come func()
				if way == "TryAcquire" {
					try, answer := hanging(soon(t), t, s, mu)
					first, come = try, func() { close(answer) }
				} else {
					before := acquire(t, other)
					first, come = start(soon(t), mu).blocked(t), func() { release(t, before) }
				}
				ctx, cancel := context.WithCancel(soon(t))
				patient := startAll(soon(t), t, 2, mu)
				impatient := startAll(ctx, t, 20, mu)
				patient = append(patient, startAll(soon(t), t, 2, mu)...)
				come()
				hold := first.granted(t)
				cancel()
				for _, a := range impatient {
					<-a.done
				}
				if way == "lingered" {
					for _, a := range patient {
						release(t, hold)
						hold = a.granted(t)
					}
					patient = nil
					token := hold.Token()
					release(t, hold)
					hold = acquire(t, mu)
					need.Equal(t, "the token of the node that lingers", hold.Token(), token)
				}
				elsewhere := start(soon(t), other).blocked(t)
				latecomers := startAll(soon(t), t, 20, mu)
				for _, a := range patient {
					release(t, hold)
					hold = a.granted(t)
				}
				elsewhere.blocked(t)
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

// If another process waits behind a contender, Release itself removes the contender, instead of leaving that to a background task.
func TestNodeThatOthersWaitForDoesNotLinger(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(tier.WithLinger(time.Hour)), process()
		hold := acquire(t, mu)
		next := start(soon(t), other).blocked(t)
		waittest.Grant(hold).Contended().C() // as if a waiter of this process had asked for this channel before and had left
		synctest.Wait()
		answerLate(s, queue.Leave, time.Second)
		begun := time.Now()
		release(t, hold)
		need.Equal(t, "until Release returns", time.Since(begun), time.Second)
		release(t, next.granted(t))
	})
}

// A lingering contender is removed when its time is over. The test then finds no contender and no state.
func TestLingerEnds(t *testing.T) {
	metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu := process(tier.WithLinger(time.Minute))
		release(t, acquire(t, mu))
		<-time.After(30 * time.Second)
		release(t, acquire(t, mu)) // each release starts the minute again
		<-time.After(59 * time.Second)
		wantQueue(t, s, "59 s after the last release", 1)
		s.Script(func(string, queue.Command) memory.Fault { return memory.Fault{Before: time.Millisecond} })
		<-time.After(time.Second)
		release(t, acquire(t, mu)) // while the contender is being removed
		<-time.After(61 * time.Second)
		synctest.Wait()
		wantQueue(t, s, "61 s after the last release", 0)
	})
}

// A lingering contender is not a hold. Contenders lists it as lingering in its own process, and as one that may linger in other processes.
func TestContendersTellALingeringNodeFromAHold(t *testing.T) {
	metered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
		mu, other := process(tier.WithLinger(time.Minute)), process()
		shows := func(when string, mu *tier.Mutex, lingering bool) {
			t.Helper()
			queue := need.Get(mu.Contenders(soon(t)))(t)
			need.That(t, fmt.Sprintf("%s: %+v, want one, lingering %t, for up to 1m", when, queue, lingering),
				len(queue) == 1 && queue[0].Lingering == lingering && queue[0].Linger == time.Minute)
		}
		for range 2 { // after the lock has lingered, a goroutine can hold it again under the same contender
			hold := acquire(t, mu)
			shows("while held", mu, false)
			release(t, hold)
			shows("after the release", mu, true)
			shows("seen from another process", other, false)
		}
	})
}

// Without a connection, a process cannot see whether another process waits, and its lease may be about to end. Therefore it neither hands
// the lock off nor lets it linger.
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
			need.That(t, "the lock is not suspended", hold.Err() == nil && locks.Err() != nil)
			hold.Release()
			if waiter == nil {
				waiter = start(soon(t), mu)
			}
			waiter.blocked(t)
			heal()
			next := waiter.granted(t)
			need.That(t, fmt.Sprintf("the next one got the node of the former owner; it waited before: %t", waits), next.Token() != hold.Token())
			release(t, next)
		})
	}
}

// A waiter that was chosen as the next owner may give up at that moment. It passes the contender on to the next waiter, but never a
// contender that is lost.
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
			wantErr(t, "the next one", next.Err(), nil)
			need.That(t, "the next one got the node that is lost", next.Token() != hold.Token())
			release(t, next)
		}
	})
}

// A new acquisition may begin after the lease has ended and before the process handles the loss. It must not get the
// lingering contender, which is lost.
func TestLostNodeIsNotTakenBackIntoUse(t *testing.T) {
	for range 50 {
		metered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.Mutex) {
			mu := process(tier.WithLinger(time.Hour))
			other := tier.Sibling(mu, "/locks/b")
			lease := acquire(t, other)
			release(t, acquire(t, mu))
			thaw := s.Freeze()
			<-lease.Lost() // the leases of both locks have ended
			next := start(soon(t), mu)
			synctest.Wait()
			need.That(t, "a lost node was taken back", next.pending() || next.got == nil)
			thaw()
			release(t, next.granted(t))
		})
		if t.Failed() {
			return
		}
	}
}

// After a contender was removed, the process sends no further command for the same path until the removal has taken effect.
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
		need.List(t, "sent before the command to leave was answered", m.take(), queue.Leave)
		close(answer)
		release(t, next.granted(t))
	})
}
