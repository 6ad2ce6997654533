package tier_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

func TestReadersOfAProcessAreOneNode(t *testing.T) {
	for _, order := range []tier.Option{tier.WithHandOff(20 * time.Millisecond), tier.WithStrictOrder()} {
		rwMetered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
			const readers = 1000
			mu := process(order)
			first := acquire(t, mu.Reader())
			m.take()
			holds := times(readers-1, func() *tier.Hold { return acquire(t, mu.Reader()) })
			nodes := s.Queue("/locks/a")
			need.That(t, fmt.Sprintf("%d readers of a process: contenders %v", readers, nodes), len(nodes) == 1 && nodes[0].Shared)
			ops := m.take()
			need.That(t, fmt.Sprintf("%d readers beside the first: requests %v", readers-1, ops), writes(ops) == 0 && len(ops) <= 1)
			stats := tier.RegistryOf(mu).Stats()
			need.Equal(t, "joins, found, and locks", [3]any{stats.Joins, stats.Found, stats.Holds}, [3]any{int64(readers - 1), int64(1), 1})
			held := tier.RegistryOf(mu).HeldLocks()
			need.That(t, fmt.Sprintf("%+v, want one lock with %d readers", held, readers), len(held) == 1 && held[0].Readers == readers)
			for _, hold := range append(holds, first) {
				wantQueue(t, s, "while somebody reads", 1)
				release(t, hold)
			}
			wantQueue(t, s, "after the last release", 0)
		})
	}
}

// A context that carries a hold may acquire the same lock again. The result depends on the mode of that hold, read or write, and on the
// requested mode.
func TestEnteringAgainInBothModes(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		write := acquire(t, mu.Writer())
		inWrite := write.Context(soon(t))
		m.take()
		again := need.Get(mu.Writer().Acquire(inWrite))(t)
		need.That(t, "write in write is shared", !again.Shared())
		read := need.Get(mu.Reader().Acquire(inWrite))(t)
		need.That(t, "read in write is not shared", read.Shared())
		inRead := read.Context(soon(t))
		more := start(inRead, mu.Writer()).granted(t)
		for _, h := range []*tier.Hold{more, again, write} {
			release(t, h)
		}
		need.That(t, "after the downgrade it is not shared", read.Shared())
		wantErr(t, "after the downgrade", read.Err(), nil)
		for _, take := range []func(context.Context) (*tier.Hold, error){mu.Writer().Acquire, mu.Writer().TryAcquire} {
			wantErr(t, "to write with the context of a hold to read", errOf(take(inRead)), tier.ErrCannotUpgrade)
		}
		deeper := start(inRead, mu.Reader()).granted(t)
		m.wantWrites(t, "entering again and the downgrade", 0)
		// Now other readers of the process get the lock, and a writer has to wait.
		beside := acquire(t, mu.Reader())
		writer := start(soon(t), mu.Writer()).blocked(t)
		release(t, read)
		release(t, deeper)
		writer.blocked(t)
		release(t, beside)
		release(t, writer.granted(t))
	})
}

func TestMutexAndRWMutexOfAPathExclude(t *testing.T) { // I1
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		for _, other := range []*tier.RWMutex{process(), nil} {
			rw := process()
			if other == nil {
				other = rw // both locks are of the same process
			}
			mu := tier.RegistryOf(other).Mutex(rw.Writer().Path())
			for _, pair := range [][2]*tier.Mutex{{mu, rw.Reader()}, {mu, rw.Writer()}, {rw.Reader(), mu}, {rw.Writer(), mu}} {
				hold := acquire(t, pair[0])
				waits := start(soon(t), pair[1]).blocked(t)
				release(t, hold)
				release(t, waits.granted(t))
			}
		}
	})
}

// The function startSides starts one acquisition for each letter in sides, in that order. An r is a reader, and a w is a writer.
func startSides(t *testing.T, mu *tier.RWMutex, sides string) (all []*call[*tier.Hold]) {
	t.Helper()
	for _, kind := range sides {
		side := mu.Writer()
		if kind == 'r' {
			side = mu.Reader()
		}
		all = append(all, start(soon(t), side).blocked(t))
	}
	return all
}

// An acquisition never overtakes earlier ones. Each turn serves either one writer, or all readers that came before the next writer.
func TestPhasesAreFair(t *testing.T) { // I6
	rwMetered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		inside := acquire(t, mu.Writer())
		var phases [][]*call[*tier.Hold]
		for _, members := range []string{"rrr", "w", "rr", "w", "w", "r"} {
			phases = append(phases, startSides(t, mu, members))
		}
		m.take()
		release(t, inside)
		for i, phase := range phases {
			for _, a := range phase {
				a.granted(t)
			}
			for _, later := range phases[i+1:] {
				later[0].blocked(t)
			}
			for _, a := range phase {
				release(t, a.got)
			}
		}
		m.wantWrites(t, "all phases; only the last one releases the lock", 1)
	})
}

// A reader waits behind a waiting writer, even if it could share the lock with the readers that hold it. If the writer gives up, the reader
// joins them.
func TestReadersBehindAWriterThatGivesUpJoin(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		inside := acquire(t, mu.Reader())
		ctx, cancel := context.WithCancel(soon(t))
		writer := start(ctx, mu.Writer()).blocked(t)
		r1, r2 := start(soon(t), mu.Reader()).blocked(t), start(soon(t), mu.Reader()).blocked(t)
		wantErr(t, "try to read while a writer waits", errOf(mu.Reader().TryAcquire(soon(t))), tier.ErrLocked)
		cancel()
		<-writer.done
		release(t, r1.granted(t))
		release(t, r2.granted(t))
		release(t, inside)
	})
}

// A steady stream of readers does not keep a writer out. It makes no difference whether these readers are in the writer's process, in
// another process, or in several.
func TestReadersWithoutEndDoNotKeepAWriterOut(t *testing.T) { // I11
	const budget, section = 20 * time.Millisecond, 3 * time.Millisecond
	for _, crowds := range []int{1, 3} {
		rwMetered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
			ctx, stop := context.WithCancel(soon(t))
			var readers sync.WaitGroup
			var mutexes []*tier.RWMutex
			for range crowds {
				mu := process(tier.WithHandOff(budget))
				mutexes = append(mutexes, mu)
				for i := range 4 {
					readers.Go(func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						for ctx.Err() == nil {
							hold := acquire(t, mu.Reader())
							time.Sleep(section)
							release(t, hold)
						}
					})
				}
			}
			time.Sleep(time.Second)
			need.AtMost(t, "writes of processes that only read, for a second", writes(m.take()), 2*crowds+3)
			const bound = budget + 2*section + 5*time.Millisecond
			for name, mu := range map[string]*tier.RWMutex{"of another process": process(), "of theirs": mutexes[0]} {
				for range 5 {
					begun := time.Now()
					hold := acquire(t, mu.Writer())
					need.AtMost(t, "the wait of a writer "+name+" while others read without end", time.Since(begun), bound)
					release(t, hold)
					time.Sleep(50 * time.Millisecond)
				}
			}
			stop()
			readers.Wait()
		})
	}
}

// If a process only reads, its lock lingers in read mode. That does not block readers of other processes.
func TestLingeringReader(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithLinger(time.Minute)), process()
		release(t, acquire(t, a.Reader()))
		synctest.Wait()
		m.take()
		release(t, acquire(t, a.Reader()))
		need.Empty(t, "commands to read a lock that lingers", m.take())
		other := acquire(t, b.Reader())
		synctest.Wait()
		wantQueue(t, s, "with one that lingers and one that reads", 2)
		writer := start(soon(t), a.Writer()).blocked(t) // gives up the lingering contender, and queues
		release(t, other)
		release(t, writer.granted(t))
		release(t, acquire(t, a.Reader())) // the writer's contender lingers, and a reader can use it
		if hold, err := a.Writer().TryAcquire(soon(t)); err != nil {
			t.Errorf("TryAcquire of a lock that lingers: %v", err)
		} else {
			release(t, hold)
		}
		release(t, acquire(t, b.Writer())) // this acquisition ends the lingering in a
		release(t, acquire(t, a.Reader()))
		hold := need.Get(a.Writer().TryAcquire(soon(t)))(t) // a read contender lingers
		release(t, hold)
	})
}

// A writer first has to remove a lingering read contender, which takes a round trip. A TryAcquire waits for that no longer than its context
// allows. After it has failed, other goroutines still get the lock.
func TestTryAcquireBesideALingeringReaderEndsWithItsContext(t *testing.T) { // I9
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a := process(tier.WithLinger(time.Minute))
		release(t, acquire(t, a.Reader()))
		thaw := s.Freeze()
		ctx := need.Within(t, time.Millisecond)
		begin := time.Now()
		wantErr(t, "TryAcquire", errOf(a.Writer().TryAcquire(ctx)), context.DeadlineExceeded)
		need.Equal(t, "TryAcquire took", time.Since(begin), time.Millisecond)
		waiter := start(soon(t), a.Writer()).blocked(t)
		thaw()
		release(t, waiter.granted(t))
		release(t, acquire(t, process().Writer()))
	})
}

// The contender of a process is a writer if any of its waiters wants to write. Otherwise it is a reader.
func TestProcessQueuesAsWhatItNeeds(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		for waiters, reads := range map[string]bool{"rr": true, "rrwr": false, "wr": false} {
			a, b := process(tier.WithStrictOrder()), process()
			hold := acquire(t, a.Writer())
			other := start(soon(t), b.Writer()).blocked(t)
			waiting := startSides(t, a, waiters)
			release(t, hold)
			got := other.granted(t)
			synctest.Wait()
			queue := s.Queue("/locks/a")
			need.That(t, fmt.Sprintf("%s wait: %v, want one more, reading: %t", waiters, queue, reads), len(queue) == 2 && queue[1].Shared == reads)
			release(t, got)
			for _, w := range waiting {
				go func() { <-w.done; release(t, w.got) }()
			}
			for _, w := range waiting {
				w.granted(t)
			}
			synctest.Wait()
		}
	})
}

// A reader may arrive while a TryAcquire of another reader is unanswered. Both then get the lock together.
func TestReadersJoinATryToRead(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		answerLate(s, queue.Try, time.Second/2)
		tried := begin(func() (*tier.Hold, error) { return mu.Reader().TryAcquire(soon(t)) }).blocked(t)
		waits := start(soon(t), mu.Reader()).blocked(t)
		hold := tried.granted(t)
		release(t, waits.granted(t))
		release(t, hold)
	})
}

// If readers share a lost lock, all of them learn of the loss, and the Release of each returns it.
func TestLossIsToldToAllReaders(t *testing.T) { // I7
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		holds := times(3, func() *tier.Hold { return acquire(t, mu.Reader()) })
		s.Expire("/locks/a", 0)
		for _, hold := range holds {
			<-hold.Lost()
		}
		next := start(soon(t), mu.Reader()).blocked(t) // this reader does not join the others, because their lock is lost
		for i, hold := range holds {
			wantErr(t, fmt.Sprintf("release of reader %d after the loss", i), hold.Release(), tier.ErrLost)
		}
		need.Equal(t, "losses of the session", tier.RegistryOf(mu).Stats().Losses[tier.LossOfSession], 3)
		release(t, next.granted(t))
	})
}

// A writer may become a reader while one of its guarded writes is unanswered. No other reader gets the lock until that write cannot take
// effect any more.
func TestReadersDoNotSeeAGuardedWriteCome(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		hold := acquire(t, mu.Writer())
		read := start(hold.Context(soon(t)), mu.Reader()).granted(t)
		finish := write(t, hold)
		release(t, hold)
		other := start(soon(t), mu.Reader()).blocked(t)
		finish()
		release(t, acquire(t, mu.Reader())) // now the write is answered, so this reader and the other one can join
		release(t, other.granted(t))
		release(t, read)
	})
}

// After a writer became a reader, readers of other processes wait at most for the budget. Writers of both processes have to wait longer.
func TestDowngradedWriterLetsReadersOfOthersIn(t *testing.T) {
	const budget = 30 * time.Millisecond
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b, c := process(tier.WithHandOff(budget)), process(), process()
		write := acquire(t, a.Writer())
		read := start(write.Context(soon(t)), a.Reader()).granted(t)
		release(t, write)
		remote := start(soon(t), b.Reader()).blocked(t)
		begun := time.Now()
		writer := start(soon(t), c.Writer()).blocked(t)
		queue := s.Queue("/locks/a")
		other := remote.granted(t)
		need.Between(t, "the wait of a reader of another process", time.Since(begun), budget, budget+10*time.Millisecond)
		if now := s.Queue("/locks/a"); len(now) != len(queue) || !now[0].Shared || now[0].Token != read.Token() {
			t.Errorf("contenders %v, of %v before, want a reader's in the place of the first", now, queue)
		}
		wantErr(t, "the downgraded hold", read.Err(), nil)
		here := start(soon(t), a.Writer()).blocked(t)
		writer.blocked(t)
		release(t, other)
		writer.blocked(t)
		release(t, read)
		release(t, writer.granted(t))
		release(t, here.granted(t))
		wantQueue(t, s, "at the end", 0)
	})
}

// Once a process has decided to share its grant, no writer of the process gets that grant, not even by rounds. Otherwise readers of other
// processes could get the lock at the same time as the writer.
func TestGrantThatIsAboutToBeSharedIsNotForAWriter(t *testing.T) { // I1
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithRounds(), tier.WithHandOff(10*time.Millisecond)), process()
		c, d := process(), process()
		before := acquire(t, b.Writer())
		w1 := start(soon(t), a.Writer()).blocked(t)
		r := start(soon(t), a.Reader()).blocked(t)
		w2 := start(soon(t), a.Writer()).blocked(t)
		release(t, before)
		hold := w1.granted(t)
		ctx, cancel := context.WithCancel(soon(t))
		obstacle := start(ctx, c.Writer()).blocked(t) // waits right behind a's contender; a can share its grant only if a reader is there instead
		reader := start(soon(t), d.Reader()).blocked(t)
		release(t, hold)
		read := r.granted(t)
		time.Sleep(time.Second) // a waits until the obstacle has left
		release(t, read)
		synctest.Wait()
		if !w2.pending() {
			cancel()
			<-obstacle.done
			synctest.Wait()
			need.That(t, "a reader of another process got in beside a writer", reader.pending())
			t.Fatal("a writer was given a grant that is about to be shared")
		}
		release(t, obstacle.granted(t))
		cancel()
		release(t, reader.granted(t))
		release(t, w2.granted(t))
	})
}

// A grant may linger, be shared, and linger again. It is released when its time is over, or when a writer waits.
func TestSharedGrantThatLingersIsLetGo(t *testing.T) { // I10
	need.Each(t, map[string]bool{"at the limit": false, "when a writer comes": true}, func(t *testing.T, wanted bool) {
		rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
			a, b := process(tier.WithLinger(time.Minute)), process()
			release(t, acquire(t, a.Writer()))
			read := acquire(t, a.Reader()) // with the contender that lingered
			other := start(soon(t), b.Reader()).granted(t)
			synctest.Wait() // until a knows of the other reader
			release(t, other)
			release(t, read)
			wantQueue(t, s, "after the releases", 1)
			if wanted {
				release(t, start(soon(t), b.Writer()).granted(t))
				return
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			wantQueue(t, s, "after twice the limit", 0)
		})
	})
}

// The last reader releases the lock, which is to linger. Without a lease, the store first has to confirm the grant. A reader that joins in
// that time keeps the lock. While a writer waits for that answer, no reader joins.
func TestReaderThatJoinsTheLastOneWhileItLeavesKeepsTheLock(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *memory.Server) {
		confirm := func() bool { time.Sleep(time.Second); return true }
		mu := specially(t, s, &special{unleased: true, confirm: confirm}, tier.WithLinger(time.Hour)).RWMutex("/locks/a")
		leave := func(h *tier.Hold) *call[bool] {
			return begin(func() (bool, error) { return true, h.Release() }).blocked(t)
		}
		left := leave(acquire(t, mu.Writer()))
		last := start(soon(t), mu.Reader()).blocked(t)
		left.granted(t)
		left = leave(last.granted(t))
		joined := acquire(t, mu.Reader())
		left.granted(t)
		writer := start(soon(t), process(t, s).RWMutex("/locks/a").Writer()).blocked(t)
		wantErr(t, "the reader that joined", joined.Err(), nil)
		release(t, joined)
		release(t, writer.granted(t))
	})
}

// Each time the store is about to confirm the grant of the last reader, another reader joins, and then leaves again. The stack must not
// grow with the number of these readers.
func TestReleaseGoesNoDeeperWithReadersThatJoinAndLeave(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		const readers = 100
		var mu *tier.RWMutex
		var joined *tier.Hold
		var depths []int // depth of the stack when each of these readers joins
		busy := false    // a joined reader is leaving, and the store is asked about its grant, too
		confirm := func() bool {
			switch {
			case busy:
			case joined != nil:
				busy = true
				release(t, joined)
				joined, busy = nil, false
			case len(depths) < readers:
				depths = append(depths, runtime.Callers(0, make([]uintptr, 10*readers)))
				joined = acquire(t, mu.Reader())
			}
			return true
		}
		mu = specially(t, s, &special{unleased: true, confirm: confirm}, tier.WithLinger(time.Hour)).RWMutex("/locks/a")
		release(t, acquire(t, mu.Reader()))
		need.Len(t, "readers that joined and left", depths, readers)
		need.Equal(t, "the depth of the stack as the last one joins", depths[readers-1], depths[0])
	})
}

// Without a lease, a release asks the store whether the lock was held up to now. If the store does not confirm that, the grant is not
// handed off. If other readers still hold the lock, the Release of the first reader returns a loss.
func TestLockThatTheStoreDoesNotVouchForIsNotHandedOff(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *memory.Server) {
		certain := false
		locks := specially(t, s, &special{unleased: true, confirm: func() bool { return certain }}, tier.WithHandOff(time.Hour))
		for _, certain = range []bool{true, false} {
			hold := acquire(t, locks.Mutex("/locks/a"))
			next := start(soon(t), locks.Mutex("/locks/a")).blocked(t)
			release(t, hold)
			if got := next.granted(t); (got.Token() == hold.Token()) != certain {
				t.Errorf("certain %t: the next owner has token %d after %d", certain, got.Token(), hold.Token())
			} else {
				release(t, got)
			}
			reader := locks.RWMutex("/locks/rw").Reader()
			first, last := acquire(t, reader), acquire(t, reader)
			need.Equal(t, "whether the release of the first reader returns no loss", first.Release() == nil, certain)
			release(t, last)
		}
	})
}

// A reader may wait here behind a writer that waits. When that writer has left, the reader gets the lock at the same time as readers of
// other processes.
func TestReadersThatWaitHereComeInOnceTheGrantIsShared(t *testing.T) {
	const budget = 30 * time.Millisecond
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithHandOff(budget)), process()
		write := acquire(t, a.Writer())
		read := start(write.Context(soon(t)), a.Reader()).granted(t)
		release(t, write)
		there := start(soon(t), b.Reader()).blocked(t)
		ctx, cancel := context.WithCancel(soon(t))
		writer := start(ctx, a.Writer()).blocked(t)
		here := start(soon(t), a.Reader()).blocked(t)
		time.Sleep(budget + budget/2)
		cancel()
		<-writer.done
		here.blocked(t) // now readers of other processes have waited for the whole budget
		there.blocked(t)
		time.Sleep(budget)
		synctest.Wait()
		need.That(t, "after two budgets a reader waits here", !here.pending())
		need.That(t, "after two budgets a reader waits there", !there.pending())
		release(t, here.granted(t))
		release(t, there.granted(t))
		release(t, read)
	})
}
