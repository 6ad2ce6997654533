package tier_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// Whoever comes waits behind those who wait; the turn is that of a writer, or of all readers up to
// the next one.
func TestPhasesAreFair(t *testing.T) { // I6
	rwMetered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		inside := acquire(t, mu.Writer())
		var phases [][]*acquisition
		for _, members := range []string{"rrr", "w", "rr", "w", "w", "r"} {
			var phase []*acquisition
			for _, kind := range members {
				side := mu.Writer()
				if kind == 'r' {
					side = mu.Reader()
				}
				phase = append(phase, start(soon(t), side).blocked(t))
			}
			phases = append(phases, phase)
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
				release(t, a.hold)
			}
		}
		if ops := m.take(); writes(ops) != 1 {
			t.Errorf("%d phases: requests %v, want one write, the last release", len(phases), ops)
		}
	})
}

// Behind a writer that waits, a reader that would fit in waits all the same, until the writer gives up.
func TestReadersBehindAWriterThatGivesUpJoin(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		inside := acquire(t, mu.Reader())
		ctx, cancel := context.WithCancel(soon(t))
		writer := start(ctx, mu.Writer()).blocked(t)
		r1, r2 := start(soon(t), mu.Reader()).blocked(t), start(soon(t), mu.Reader()).blocked(t)
		if _, err := mu.Reader().TryAcquire(soon(t)); !errors.Is(err, tier.ErrLocked) {
			t.Errorf("try to read while a writer waits: %v, want %v", err, tier.ErrLocked)
		}
		cancel()
		<-writer.done
		release(t, r1.granted(t))
		release(t, r2.granted(t))
		release(t, inside)
	})
}

// A reader of the same call tree enters again although a writer waits: else both would wait for ever.
func TestReaderEntersAgainBeforeAWaitingWriter(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(), process()
		read := acquire(t, a.Reader())
		here, there := start(soon(t), a.Writer()).blocked(t), start(soon(t), b.Writer()).blocked(t)
		again, err := a.Reader().Acquire(read.Context(soon(t)))
		if err != nil {
			t.Fatal(err)
		}
		release(t, read)
		here.blocked(t)
		there.blocked(t)
		release(t, again)
		release(t, there.granted(t))
		release(t, here.granted(t))
	})
}

// Readers that overlap without end do not keep a writer out: neither one of their process nor one of
// another. Nor do those of several processes.
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
			if ops := m.take(); writes(ops) > 2*crowds+3 {
				t.Errorf("%d processes only read for a second: %d writes, want one contender each", crowds, writes(ops))
			}
			outside := process()
			for _, w := range []struct {
				name  string
				mu    *tier.RWMutex
				bound time.Duration
			}{
				{"of another process", outside, budget + 2*section + 5*time.Millisecond},
				{"of theirs", mutexes[0], budget + 2*section + 5*time.Millisecond},
			} {
				for range 5 {
					begun := time.Now()
					hold := acquire(t, w.mu.Writer())
					if d := time.Since(begun); d > w.bound {
						t.Errorf("%d processes read without end: a writer %s waited %v, at most %v are due", crowds, w.name, d, w.bound)
					}
					release(t, hold)
					time.Sleep(50 * time.Millisecond)
				}
			}
			stop()
			readers.Wait()
		})
	}
}

// What a process that only reads keeps is enough to read again, and nobody is kept out who reads.
func TestLingeringReader(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(tier.WithLinger(time.Minute)), process()
		release(t, acquire(t, a.Reader()))
		synctest.Wait()
		m.take()
		release(t, acquire(t, a.Reader()))
		if ops := m.take(); len(ops) > 0 {
			t.Errorf("to read what lingers: requests %v, want none", ops)
		}
		other := acquire(t, b.Reader())
		synctest.Wait()
		if nodes := s.Queue("/locks/a"); len(nodes) != 2 {
			t.Errorf("contenders %v, want that which lingers and the reader's", nodes)
		}
		writer := start(soon(t), a.Writer()).blocked(t) // gives up what lingers, and queues
		release(t, other)
		release(t, writer.granted(t))
		release(t, acquire(t, a.Reader())) // in what lingers of the writer
		if hold, err := a.Writer().TryAcquire(soon(t)); err != nil {
			t.Errorf("TryAcquire of what lingers: %v", err)
		} else {
			release(t, hold)
		}
		release(t, acquire(t, b.Writer())) // ends the lingering
		release(t, acquire(t, a.Reader()))
		hold, err := a.Writer().TryAcquire(soon(t)) // a node to read lingers
		if err != nil {
			t.Fatalf("TryAcquire while a node to read lingers here: %v", err)
		}
		release(t, hold)
	})
}

// To write, what lingers to read has to go first, which takes as long as the server does. The caller waits no longer than
// it wants to, and the others get the lock in the end.
func TestTryAcquireBesideALingeringReaderEndsWithItsContext(t *testing.T) { // I9
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a := process(tier.WithLinger(time.Minute))
		release(t, acquire(t, a.Reader()))
		thaw := s.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := a.Writer().TryAcquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire: %v", err)
		}
		if took := time.Since(begin); took != time.Millisecond {
			t.Errorf("TryAcquire took %v", took)
		}
		waiter := start(soon(t), a.Writer()).blocked(t)
		thaw()
		release(t, waiter.granted(t))
		release(t, acquire(t, process().Writer()))
	})
}

// A process with a writer among those who wait queues as one, and as a reader otherwise.
func TestProcessQueuesAsWhatItNeeds(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		for waiters, reads := range map[string]bool{"rr": true, "rrwr": false, "wr": false} {
			a, b := process(tier.WithHandOff(0)), process()
			hold := acquire(t, a.Writer())
			other := start(soon(t), b.Writer()).blocked(t)
			var waiting []*acquisition
			for _, kind := range waiters {
				side := a.Writer()
				if kind == 'r' {
					side = a.Reader()
				}
				waiting = append(waiting, start(soon(t), side).blocked(t))
			}
			release(t, hold)
			got := other.granted(t)
			synctest.Wait()
			if queue := s.Queue("/locks/a"); len(queue) != 2 || queue[1].Shared != reads {
				t.Errorf("%s wait: contenders %v, want one more, which reads: %t", waiters, queue, reads)
			}
			release(t, got)
			for _, w := range waiting {
				go func() { <-w.done; release(t, w.hold) }()
			}
			for _, w := range waiting {
				w.granted(t)
			}
			synctest.Wait()
		}
	})
}

// What a try takes serves those, too, who came while it was under way.
func TestReadersJoinATryToRead(t *testing.T) {
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		answerLate(s, queue.Try, time.Second)
		tried := make(chan *tier.Hold)
		go func() {
			hold, err := mu.Reader().TryAcquire(soon(t))
			if err != nil {
				t.Error(err)
			}
			tried <- hold
		}()
		synctest.Wait()
		waits := start(soon(t), mu.Reader()).blocked(t)
		hold := <-tried
		release(t, waits.granted(t))
		release(t, hold)
	})
}
