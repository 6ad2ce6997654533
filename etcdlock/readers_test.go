package etcdlock

import (
	"context"
	"slices"
	"testing"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// in returns what queues in a mode.
func (p *process) in(t *testing.T, path string, mode second.Mode) lock {
	t.Helper()
	c, err := p.Claim(path, second.Options{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	return lock{c, path}
}

var modes = []second.Mode{second.Exclusive, second.Writing, second.Reading}

func TestReaderThatNeedNotWaitTakesOneTransaction(t *testing.T) {
	t.Parallel()
	readers := []*queue.Contender{mustAcquire(t, start(t).in(t, lockPath(t), second.Reading))}
	for range 3 {
		p := start(t)
		l := p.in(t, lockPath(t), second.Reading)
		readers = append(readers, mustAcquire(t, l))
		tried, err := l.TryAcquire(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		if n := p.calls.count(""); n != 3 { // with that for the lease
			t.Errorf("%d requests, want two transactions and one for the lease", n)
		}
		mustRelease(t, tried)
	}
	for _, r := range readers {
		mustRelease(t, r)
	}
	if keys := left(t, lockPath(t)); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestContendersTellWhoReads(t *testing.T) {
	t.Parallel()
	p := start(t)
	var waits []*wait
	for _, mode := range []second.Mode{second.Reading, second.Writing, second.Reading, second.Exclusive} {
		waits = append(waits, queueAt(t, p.in(t, lockPath(t), mode)))
	}
	queue, err := p.at(t, lockPath(t)).Contenders(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	var shared []bool
	for _, c := range queue {
		shared = append(shared, c.Shared)
	}
	if !slices.Equal(shared, []bool{true, false, true, false}) {
		t.Errorf("shared: %v", shared)
	}
	for _, w := range waits {
		mustRelease(t, w.must(t))
	}
}

func TestReaderStandsBehindThoseItWaitsFor(t *testing.T) {
	t.Parallel()
	first := mustAcquire(t, start(t).in(t, lockPath(t), second.Reading))
	writer := queueAt(t, start(t).in(t, lockPath(t), second.Writing))
	reader := queueAt(t, start(t).in(t, lockPath(t), second.Reading))
	var w second.Wait
	l := start(t).in(t, lockPath(t), second.Reading)
	last := begin(t, func(ctx context.Context) (second.Grant, error) { return l.Claim.Acquire(ctx, &w) })
	eventually(t, "it stands behind one", func() bool { return w.Standing().Ahead == 1 })
	if n := w.Standing().Nearest; n.Shared || n.Token <= first.Token() {
		t.Errorf("behind %+v, want the writer", n)
	}
	mustRelease(t, first)
	mustRelease(t, writer.must(t))
	mustRelease(t, reader.must(t))
	mustRelease(t, last.must(t))
}

func TestReadersOfLocksBelowAreOtherReaders(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	var below []*queue.Contender
	for _, sub := range []string{"/a", "/b", "/read-", "/z"} {
		below = append(below, mustAcquire(t, p.in(t, lockPath(t)+sub, second.Writing)),
			mustAcquire(t, p.in(t, lockPath(t)+sub+"/c", second.Reading)))
	}
	l := q.in(t, lockPath(t), second.Reading)
	mustRelease(t, mustAcquire(t, l))
	tried, err := l.TryAcquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	w := queueAt(t, p.at(t, lockPath(t)))
	w.pending(t)
	mustRelease(t, tried)
	mustRelease(t, w.must(t))
	for _, c := range below {
		mustRelease(t, c)
	}
}
