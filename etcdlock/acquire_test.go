package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
)

func TestUncontendedTurnIsOneTransactionAndOneDelete(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	before := p.calls.count("")
	c := mustAcquire(t, lock)
	if txns, all := p.calls.count("Txn"), p.calls.count("")-before; txns != 1 || all != 1 {
		t.Errorf("acquired with %d transactions of %d requests, want one", txns, all)
	}
	mustRelease(t, c)
	if deletes, all := p.calls.count("DeleteRange"), p.calls.count("")-before; deletes != 1 || all != 2 {
		t.Errorf("released with %d deletes of %d requests, want one", deletes, all-1)
	}
	if keys := left(t, lockPath(t)); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestContendersAreServedInTheOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	first := mustAcquire(t, start(t).at(t, lockPath(t)))
	var waits []*wait
	for range 4 {
		waits = append(waits, queueAt(t, start(t).at(t, lockPath(t))))
	}
	held := first
	for i, w := range waits {
		for _, later := range waits[i:] {
			later.pending(t)
		}
		mustRelease(t, held)
		next := w.must(t)
		if next.Token() <= held.Token() {
			t.Errorf("token %d after %d", next.Token(), held.Token())
		}
		held = next
	}
	mustRelease(t, held)
}

func TestTokenIsTheCreateRevisionOfTheKey(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	answer, err := outside(t).Get(soon(t), keyOf(c.Ref()))
	if err != nil || len(answer.Kvs) != 1 || answer.Kvs[0].CreateRevision != c.Token() {
		t.Errorf("token %d, key %v, %v", c.Token(), answer, err)
	}
}

func TestRequeueIsOneWriteAndGoesToTheTail(t *testing.T) {
	p, q := start(t), start(t)
	lock := p.at(t, lockPath(t))
	c := mustAcquire(t, lock)
	other := queueAt(t, q.at(t, lockPath(t)))
	before := writes(t)
	again := begin(t, func(ctx context.Context) (second.Grant, error) { return lock.Requeue(ctx, c) })
	taken := other.must(t)
	if n := writes(t) - before; n != 1 {
		t.Errorf("a requeue of %d writes", n)
	}
	if err := c.AwaitRelease(); err != nil {
		t.Errorf("the old grant: %v", err)
	}
	wantErr(t, c.Err(), second.ErrReleased)
	if err := c.Context().Err(); err != nil {
		t.Errorf("a grant that is given up has a context that ends: %v", context.Cause(c.Context()))
	}
	again.pending(t)
	mustRelease(t, taken)
	mustRelease(t, again.must(t))
}

func TestRequeueGivesTheOldGrantUpInAnyCase(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	c := mustAcquire(t, lock)
	if g, err := lock.Requeue(over, c); err == nil {
		mustRelease(t, g) // it was quicker
	}
	if err := c.AwaitRelease(); err != nil {
		t.Error(err)
	}
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
	_, err := lock.Requeue(soon(t), c)
	wantErr(t, err, second.ErrReleased)
	wantErr(t, c.Release(), second.ErrReleased)
}

func TestEventThatOvertakesTheAnswerOfARequeueIsNoLoss(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	c := mustAcquire(t, lock)
	c.Contested().C() // watches
	eventually(t, "a watch", func() bool { return p.calls.count("Range") > 0 })
	p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
		defer time.Sleep(50 * time.Millisecond) // for the event
		return send(ctx)
	})
	g, err := lock.Requeue(soon(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.AwaitRelease(), context.Cause(c.Context())); err != nil {
		t.Errorf("the old grant: %v", err)
	}
	mustRelease(t, g)
}

func TestEndOfTheContextIsHeardBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	p := start(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	lock := p.at(t, lockPath(t))
	for _, acquire := range []func(context.Context) (second.Grant, error){lock.Acquire, lock.TryAcquire} {
		_, err := acquire(over)
		wantErr(t, err, context.Canceled)
	}
	if n := p.calls.count("Txn"); n != 0 {
		t.Errorf("%d transactions", n)
	}
}

func TestBusyTryIsOneTransactionThatWritesNothing(t *testing.T) {
	holder := mustAcquire(t, start(t).at(t, lockPath(t)))
	p := start(t)
	lock := p.at(t, lockPath(t))
	requests, revision := p.calls.count(""), writes(t)
	_, err := lock.TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	if n := p.calls.count("") - requests; n != 1 {
		t.Errorf("a try of %d requests", n)
	}
	if n := writes(t) - revision; n != 0 {
		t.Errorf("a try of %d writes", n)
	}
	mustRelease(t, holder)
	g, err := lock.TryAcquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, g)
	if n := p.calls.count("Txn"); n != 2 {
		t.Errorf("two tries of %d transactions", n)
	}
}

func TestLocksBelowAreOtherLocks(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	below := mustAcquire(t, p.at(t, lockPath(t)+"/below"))
	above := mustAcquire(t, q.at(t, lockPath(t)))
	w := queueAt(t, p.at(t, lockPath(t)))
	w.pending(t)
	_, err := p.at(t, lockPath(t)).TryAcquire(soon(t))
	wantErr(t, err, second.ErrLocked)
	mustRelease(t, above)
	mustRelease(t, w.must(t))
	tried, err := q.at(t, lockPath(t)).TryAcquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	if queue, err := q.at(t, lockPath(t)).Contenders(soon(t)); err != nil || len(queue) != 1 {
		t.Errorf("contenders %v, %v", queue, err)
	}
	mustRelease(t, tried)
	mustRelease(t, below)
}

func TestCancelledAcquisitionLeavesNothing(t *testing.T) {
	t.Parallel()
	holder := mustAcquire(t, start(t).at(t, lockPath(t)))
	p := start(t)
	w := queueAt(t, p.at(t, lockPath(t)))
	w.cancel()
	w.fails(t, context.Canceled)
	eventually(t, "one key", func() bool { return len(left(t, lockPath(t))) == 1 })
	mustRelease(t, holder)
	mustRelease(t, mustAcquire(t, p.at(t, lockPath(t))))
}

func TestClosedProcessIsGone(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	lock := p.at(t, lockPath(t))
	c := mustAcquire(t, lock)
	w := queueAt(t, lock)
	behind := queueAt(t, q.at(t, lockPath(t)))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	ended(t, "the hold", c.Context().Done(), 0)
	w.fails(t, second.ErrClosed)
	ended(t, "Done", p.Done(), 0)
	closed := time.Now()
	mustRelease(t, behind.must(t))
	if d := time.Since(closed); d > ttl/3 {
		t.Errorf("the next one waited for %v", d)
	}
	wantErr(t, context.Cause(c.Context()), second.ErrLost)
	wantErr(t, c.Release(), second.ErrLost)
	wantErr(t, p.Err(), second.ErrClosed)
	_, err := lock.Acquire(soon(t))
	wantErr(t, err, second.ErrClosed)
	_, err = lock.TryAcquire(soon(t))
	wantErr(t, err, second.ErrClosed)
	_, err = lock.Contenders(soon(t))
	wantErr(t, err, second.ErrClosed)
	if err := errors.Join(p.Close(), p.client.Ctx().Err()); err != nil {
		t.Error(err)
	}
	if _, err := p.client.Get(soon(t), "x"); err != nil {
		t.Errorf("the client is not left open: %v", err)
	}
}

func TestProcessEndsWithItsClient(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	p.client.Close()
	ended(t, "the hold", c.Context().Done(), ttl)
	ended(t, "Done", p.Done(), ttl)
}
