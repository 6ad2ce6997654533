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

func TestTokenIsTheCreateRevisionOfTheKey(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	answer, err := outside(t).Get(soon(t), keyOf(c.Ref()))
	if err != nil || len(answer.Kvs) != 1 || answer.Kvs[0].CreateRevision != c.Token() {
		t.Errorf("token %d, key %v, %v", c.Token(), answer, err)
	}
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

func TestCloseRevokesTheLeaseAndLeavesTheClientOpen(t *testing.T) {
	t.Parallel()
	p := start(t)
	mustAcquire(t, p.at(t, lockPath(t)))
	lease := p.lease()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if answer, err := p.client.TimeToLive(soon(t), lease); err != nil || answer.TTL > 0 {
		t.Errorf("%v, %v; want an open client, and no such lease", answer, err)
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
