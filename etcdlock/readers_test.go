package etcdlock

import (
	"context"
	"fmt"
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

func TestOnlyReadersHaveTheLockTogether(t *testing.T) {
	p, q := start(t), start(t)
	for _, first := range modes {
		for _, then := range modes {
			path := fmt.Sprintf("%s/%d%d", lockPath(t), first, then)
			held, next := mustAcquire(t, p.in(t, path, first)), q.in(t, path, then)
			if first == second.Reading && then == second.Reading {
				mustRelease(t, mustAcquire(t, next))
				tried, err := next.TryAcquire(soon(t))
				if err != nil {
					t.Fatal(err)
				}
				mustRelease(t, tried)
				mustRelease(t, held)
				continue
			}
			before, revision := q.calls.count(""), writes(t)
			_, err := next.TryAcquire(soon(t))
			wantErr(t, err, second.ErrLocked)
			if n, m := q.calls.count("")-before, writes(t)-revision; n != 1 || m != 0 {
				t.Errorf("mode %d behind %d: a try of %d requests and %d writes", then, first, n, m)
			}
			w := queueAt(t, next)
			w.pending(t)
			mustRelease(t, held)
			c := w.must(t)
			if c.Shared() != (then == second.Reading) {
				t.Errorf("a grant in mode %d says shared: %v", then, c.Shared())
			}
			mustRelease(t, c)
		}
	}
}

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

func TestReaderDoesNotOvertakeAWriterThatWaits(t *testing.T) {
	t.Parallel()
	first := mustAcquire(t, start(t).in(t, lockPath(t), second.Reading))
	w := queueAt(t, start(t).in(t, lockPath(t), second.Writing))
	var behind []*wait
	for range 3 {
		p := start(t)
		_, err := p.in(t, lockPath(t), second.Reading).TryAcquire(soon(t))
		wantErr(t, err, second.ErrLocked)
		behind = append(behind, queueAt(t, p.in(t, lockPath(t), second.Reading)))
	}
	last := queueAt(t, start(t).in(t, lockPath(t), second.Writing))
	behind[0].pending(t)
	mustRelease(t, first)
	writer := w.must(t)
	behind[0].pending(t)
	mustRelease(t, writer)
	var together []*queue.Contender
	for _, b := range behind {
		together = append(together, b.must(t))
	}
	for _, r := range together {
		last.pending(t)
		mustRelease(t, r)
	}
	mustRelease(t, last.must(t))
}

func TestReaderIsContestedByThoseWhoDoNotRead(t *testing.T) {
	t.Parallel()
	for _, mode := range []second.Mode{second.Exclusive, second.Writing} {
		path := fmt.Sprintf("%s/%d", lockPath(t), mode)
		p, q := start(t), start(t)
		readers := []*queue.Contender{mustAcquire(t, p.in(t, path, second.Reading)), mustAcquire(t, q.in(t, path, second.Reading))}
		for i, r := range readers {
			r.Contested().C()
			m := []*process{p, q}[i].store.mirror(path)
			eventually(t, "a mirror", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.places) == 2 })
			if r.Contested().Raised() {
				t.Errorf("reader %d is contested by a reader", i)
			}
		}
		w := queueAt(t, start(t).in(t, path, mode))
		for _, r := range readers {
			ended(t, "contested", r.Contested().C(), ttl/3)
			mustRelease(t, r)
		}
		c := w.must(t)
		r := queueAt(t, p.in(t, path, second.Reading))
		ended(t, "contested by a reader", c.Contested().C(), ttl/3)
		mustRelease(t, c)
		mustRelease(t, r.must(t))
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

func TestRequeueInAnotherModeIsOneWrite(t *testing.T) {
	p, q := start(t), start(t)
	reading, writing := p.in(t, lockPath(t), second.Reading), p.in(t, lockPath(t), second.Writing)
	held := mustAcquire(t, reading)
	other := mustAcquire(t, q.in(t, lockPath(t), second.Reading))
	before := writes(t)
	again := begin(t, func(ctx context.Context) (second.Grant, error) { return writing.Requeue(ctx, held) })
	ended(t, "contested", other.Contested().C(), ttl/3)
	again.pending(t)
	if n := writes(t) - before; n != 1 {
		t.Errorf("%d writes", n)
	}
	mustRelease(t, other)
	writer := again.must(t)
	again = begin(t, func(ctx context.Context) (second.Grant, error) { return reading.Requeue(ctx, writer) })
	reader := again.must(t)
	if writer.Shared() || !reader.Shared() {
		t.Errorf("shared %v, %v", writer.Shared(), reader.Shared())
	}
	mustRelease(t, reader)
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
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

func TestLostReplyOfAReadersAcquisitionIsFoundOut(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	reader := mustAcquire(t, q.in(t, lockPath(t), second.Reading))
	p.calls.dropReply("Txn", 1)
	c := mustAcquire(t, p.in(t, lockPath(t), second.Reading))
	if keys := left(t, lockPath(t)); len(keys) != 2 || keys[1] != keyOf(c.Ref()) {
		t.Errorf("keys %v, want that of the grant behind the first", keys)
	}
	if n := p.calls.count("Watch"); n != 0 {
		t.Error("watched the queue: what it had to know was in the answer")
	}
	mustRelease(t, c)
	mustRelease(t, reader)
	writer := mustAcquire(t, q.in(t, lockPath(t), second.Writing))
	p.calls.dropReply("Txn", 1)
	w := begin(t, p.in(t, lockPath(t), second.Reading).Acquire)
	eventually(t, "two keys", func() bool { return len(left(t, lockPath(t))) == 2 })
	w.pending(t)
	mustRelease(t, writer)
	mustRelease(t, w.must(t))
}
