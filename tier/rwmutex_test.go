package tier_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

func TestReadersShareAndAWriterIsAlone(t *testing.T) { // I1
	rwMetered(t, func(t *testing.T, s *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b, c := process(), process(), process()
		r1, r2 := acquire(t, a.Reader()), acquire(t, b.Reader())
		r3 := acquire(t, a.Reader())
		if !r1.Shared() || !r3.Shared() {
			t.Error("a hold to read says that it is not shared")
		}
		w := start(soon(t), c.Writer()).blocked(t)
		release(t, r1)
		release(t, r2)
		w.blocked(t) // the second reader of a is there still
		release(t, r3)
		hold := w.granted(t)
		if hold.Shared() {
			t.Error("a hold to write says that it is shared")
		}
		reader, writer := start(soon(t), a.Reader()), start(soon(t), b.Writer())
		here, there := start(soon(t), c.Reader()), start(soon(t), c.Writer())
		for _, other := range []*acquisition{reader, writer, here, there} {
			other.blocked(t)
		}
		release(t, hold)
		var leaving sync.WaitGroup
		for _, other := range []*acquisition{reader, writer, here, there} {
			leaving.Go(func() {
				<-other.done
				release(t, other.hold)
			})
		}
		leaving.Wait()
	})
}

func TestReadersOfAProcessAreOneNode(t *testing.T) {
	for _, budget := range []time.Duration{20 * time.Millisecond, 0} {
		testReadersOfAProcessAreOneNode(t, tier.WithHandOff(budget))
	}
}

func testReadersOfAProcessAreOneNode(t *testing.T, handOff tier.Option) {
	rwMetered(t, func(t *testing.T, s *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		const readers = 1000
		mu := process(handOff)
		first := acquire(t, mu.Reader())
		m.take()
		var holds []*tier.Hold
		for range readers - 1 {
			holds = append(holds, acquire(t, mu.Reader()))
		}
		if nodes := s.Queue("/locks/a"); len(nodes) != 1 || !nodes[0].Shared {
			t.Errorf("%d readers of a process: contenders %v, want one to read", readers, nodes)
		}
		if ops := m.take(); writes(ops) > 0 || len(ops) > 1 {
			t.Errorf("%d readers beside the first: requests %v, want at most a look at the queue", readers-1, ops)
		}
		if stats := tier.RegistryOf(mu).Stats(); stats.Joins != readers-1 || stats.Found != 1 || stats.Holds != 1 {
			t.Errorf("stats: %+v, want %d joins, 1 found, 1 lock", stats, readers-1)
		}
		if held := tier.RegistryOf(mu).HeldLocks(); len(held) != 1 || held[0].Readers != readers {
			t.Errorf("Holds: %+v, want one lock with %d readers", held, readers)
		}
		for _, hold := range append(holds, first) {
			if nodes := s.Queue("/locks/a"); len(nodes) != 1 {
				t.Fatalf("contenders %v while somebody reads", nodes)
			}
			release(t, hold)
		}
		if nodes := s.Queue("/locks/a"); len(nodes) != 0 {
			t.Errorf("contenders %v after the last release", nodes)
		}
	})
}

// The rules of entering again: what the context's hold is, what is asked for, what comes of it.
func TestEnteringAgainInBothModes(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		mu := process()
		write := acquire(t, mu.Writer())
		inWrite := write.Context(soon(t))
		m.take()
		again, err := mu.Writer().Acquire(inWrite)
		if err != nil || again.Shared() {
			t.Fatalf("write in write: %v, %v", again, err)
		}
		read, err := mu.Reader().Acquire(inWrite)
		if err != nil || !read.Shared() {
			t.Fatalf("read in write: %v, %v", read, err)
		}
		inRead := read.Context(soon(t))
		more, err := mu.Writer().Acquire(inRead)
		if err != nil {
			t.Fatalf("write in read, in write: %v", err)
		}
		for _, h := range []*tier.Hold{more, again, write} {
			release(t, h)
		}
		if !read.Shared() || read.Err() != nil {
			t.Errorf("after the downgrade: shared %t, err %v", read.Shared(), read.Err())
		}
		for name, take := range map[string]func(context.Context) (*tier.Hold, error){"Acquire": mu.Writer().Acquire, "TryAcquire": mu.Writer().TryAcquire} {
			if _, err := take(inRead); !errors.Is(err, tier.ErrUpgrade) {
				t.Errorf("%s to write with the context of a hold to read: %v, want %v", name, err, tier.ErrUpgrade)
			}
		}
		deeper, err := mu.Reader().Acquire(inRead)
		if err != nil {
			t.Fatalf("read in read: %v", err)
		}
		if ops := m.take(); writes(ops) > 0 {
			t.Errorf("entering again and the downgrade: requests %v, want no write", ops)
		}
		// Others of the process come in now, and a writer has to wait.
		beside := acquire(t, mu.Reader())
		writer := start(soon(t), mu.Writer()).blocked(t)
		release(t, read)
		release(t, deeper)
		writer.blocked(t)
		release(t, beside)
		release(t, writer.granted(t))
	})
}

func TestTryAcquireOfBothSides(t *testing.T) {
	rwMetered(t, func(t *testing.T, _ *memory.Server, m *meter, process func(...tier.Option) *tier.RWMutex) {
		a, b := process(), process()
		try := func(take func(context.Context) (*tier.Hold, error), want error) *tier.Hold {
			t.Helper()
			hold, err := take(soon(t))
			if !errors.Is(err, want) || (err == nil) != (hold != nil) {
				t.Fatalf("got %v, %v; want %v", hold, err, want)
			}
			return hold
		}
		r := try(a.Reader().TryAcquire, nil)
		m.take()
		here := try(a.Reader().TryAcquire, nil)
		there := try(b.Reader().TryAcquire, nil)
		try(a.Writer().TryAcquire, tier.ErrLocked)
		try(b.Writer().TryAcquire, tier.ErrLocked)
		w := start(soon(t), b.Writer()).blocked(t)
		release(t, there)
		try(b.Reader().TryAcquire, tier.ErrLocked)
		release(t, r)
		release(t, here)
		hold := w.granted(t)
		for _, take := range []func(context.Context) (*tier.Hold, error){a.Writer().TryAcquire, a.Reader().TryAcquire, b.Writer().TryAcquire, b.Reader().TryAcquire} {
			try(take, tier.ErrLocked)
		}
		release(t, hold)
		release(t, try(a.Writer().TryAcquire, nil))
	})
}

func TestMutexAndRWMutexOfAPathExclude(t *testing.T) { // I1
	rwMetered(t, func(t *testing.T, _ *memory.Server, _ *meter, process func(...tier.Option) *tier.RWMutex) {
		for _, other := range []*tier.RWMutex{process(), nil} {
			rw := process()
			if other == nil {
				other = rw // of one process
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
