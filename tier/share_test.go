package tier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

// While a downgraded writer reads, readers of other processes are kept out for the budget, and not
// for longer. Whoever waits to write, here or there, goes on waiting.
func TestDowngradedWriterLetsReadersOfOthersIn(t *testing.T) {
	const budget = 30 * time.Millisecond
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b, c := process(tier.WithHandOff(budget)), process(), process()
		write := acquire(t, a.Writer())
		read, err := a.Reader().Acquire(write.Context(soon(t)))
		if err != nil {
			t.Fatal(err)
		}
		release(t, write)
		remote := start(soon(t), b.Reader()).blocked(t)
		begun := time.Now()
		writer := start(soon(t), c.Writer()).blocked(t)
		queue := s.Queue("/locks/a")
		other := remote.granted(t)
		if d := time.Since(begun); d < budget || d > budget+10*time.Millisecond {
			t.Errorf("a reader of another process got in after %v, want the budget, %v", d, budget)
		}
		if now := s.Queue("/locks/a"); len(now) != len(queue) || !now[0].Shared || now[0].Token != read.Token() {
			t.Errorf("contenders %v, of %v before, want a reader's in the place of the first", now, queue)
		}
		if err := read.Err(); err != nil {
			t.Errorf("the downgraded hold: %v", err)
		}
		here := start(soon(t), a.Writer()).blocked(t)
		writer.blocked(t)
		release(t, other)
		writer.blocked(t)
		release(t, read)
		release(t, writer.granted(t))
		release(t, here.granted(t))
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("contenders %v at the end", nodes)
		}
	})
}

// A grant that others may share already is not enough for a writer of the process.
func TestSharedGrantIsNotForAWriter(t *testing.T) { // I1
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(), process()
		write := acquire(t, a.Writer())
		read, err := a.Reader().Acquire(write.Context(soon(t)))
		if err != nil {
			t.Fatal(err)
		}
		release(t, write)
		other := start(soon(t), b.Reader()).granted(t) // the grant of a is shared now
		writer := start(soon(t), a.Writer()).blocked(t)
		release(t, read)
		writer.blocked(t)
		release(t, other)
		release(t, writer.granted(t))
	})
}

// A grant that is about to be shared is not given to a writer any more, not even one whose round it is:
// those who read could be let in beside it at any time.
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
		obstacle := start(ctx, c.Writer()).blocked(t) // right behind a, where only a reader lets a share
		reader := start(soon(t), d.Reader()).blocked(t)
		release(t, hold)
		read := r.granted(t)
		time.Sleep(time.Second) // a waits for the obstacle to go
		release(t, read)
		synctest.Wait()
		if !w2.pending() {
			cancel()
			<-obstacle.done
			synctest.Wait()
			if !reader.pending() {
				t.Error("a reader of another process got in beside a writer")
			}
			t.Fatal("a writer was given a grant that is about to be shared")
		}
		release(t, obstacle.granted(t))
		cancel()
		release(t, reader.granted(t))
		release(t, w2.granted(t))
	})
}
