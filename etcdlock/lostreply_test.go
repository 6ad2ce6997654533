package etcdlock

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

func TestLostReplyOfAnAcquisitionIsFoundOut(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.calls.dropReply("Txn", 1)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	if keys := left(t, lockPath(t)); len(keys) != 1 || keys[0] != keyOf(c.Ref()) {
		t.Errorf("keys %v, want that of the grant", keys)
	}
	mustRelease(t, c)
}

func TestLostReplyOfARequeueIsFoundOut(t *testing.T) {
	t.Parallel()
	p, q := start(t), start(t)
	lock := p.at(t, lockPath(t))
	c := mustAcquire(t, lock)
	other := queueAt(t, q.at(t, lockPath(t)))
	p.calls.dropReply("Txn", 1)
	again := begin(t, func(ctx context.Context) (second.Grant, error) { return lock.Requeue(ctx, c) })
	mustRelease(t, other.must(t))
	mustRelease(t, again.must(t))
	if err := c.AwaitRelease(); err != nil {
		t.Error(err)
	}
	if keys := left(t, lockPath(t)); len(keys) != 0 {
		t.Errorf("left: %v", keys)
	}
}

// What deleted the key was its own requeue.
func TestRequeueThatIsGivenUpWithoutAReplyIsNoLoss(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	c := mustAcquire(t, lock)
	ctx, cancel := context.WithCancel(t.Context())
	p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
		defer cancel()
		if err := send(ctx); err != nil {
			return err
		}
		return status.Error(codes.Internal, "uncertain, from an etcd that answers")
	})
	_, err := lock.Requeue(ctx, c)
	wantErr(t, err, context.Canceled)
	if err := c.AwaitRelease(); err != nil {
		t.Error(err)
	}
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
}

func TestAttemptThatIsGivenUpWithoutAReplyLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
		defer cancel()
		if err := send(ctx); err != nil {
			return err
		}
		return errDropped
	})
	p.calls.on("LeaseTimeToLive", func(context.Context, any, func(context.Context) error) (bool, error) {
		return true, errDropped // no need to wait for the audit
	})
	_, err := p.at(t, lockPath(t)).Acquire(ctx)
	wantErr(t, err, context.Canceled)
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
}

func TestCancelledAcquisitionReturnsAtOnceAndUndoesItself(t *testing.T) {
	t.Parallel()
	p := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan struct{})
	p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
		defer func() { <-answer }()
		return send(ctx)
	})
	w := begin(t, func(context.Context) (second.Grant, error) { return p.at(t, lockPath(t)).Acquire(ctx) })
	eventually(t, "a key", func() bool { return len(left(t, lockPath(t))) == 1 })
	cancel()
	w.fails(t, context.Canceled)
	close(answer)
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
	if p.records.count(queue.Enter, queue.Unknown) > 0 {
		t.Error("the end of the caller made a request that was answered doubtful")
	}
}

func TestNobodyQueuesWhileEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	mustRelease(t, mustAcquire(t, lock))
	heal := p.wire.sever()
	eventually(t, "the process knows", func() bool { return p.Err() != nil })
	before := p.calls.count("Txn")
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		_, err := lock.Acquire(ctx)
		cancel()
		wantErr(t, err, context.DeadlineExceeded)
	}
	w := begin(t, lock.Acquire)
	w.pending(t)
	if n := p.calls.count("Txn") - before; n != 0 {
		t.Errorf("%d transactions to an etcd that does not answer", n)
	}
	heal()
	mustRelease(t, w.must(t))
}

func TestRequeueThatDoesNotBeginReturnsWhenTheKeyIsGone(t *testing.T) { // I3
	t.Parallel()
	p := start(t)
	lock := p.at(t, lockPath(t))
	g := mustAcquire(t, lock)
	p.calls.once("DeleteRange", 1, func(ctx context.Context, send func(context.Context) error) error {
		time.Sleep(100 * time.Millisecond)
		return send(ctx)
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := lock.Requeue(ctx, g)
	wantErr(t, err, context.Canceled)
	if keys := left(t, lockPath(t)); len(keys) > 0 {
		t.Errorf("returned before the key was gone: %v", keys)
	}
}

func TestTransactionThatIsExecutedLateLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	late, deliver := p.calls.delay(t, "Txn", 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-late
		cancel()
	}()
	_, err := p.at(t, lockPath(t)).Acquire(ctx)
	wantErr(t, err, context.Canceled)
	eventually(t, "an idle reaper", func() bool { return p.records.count(queue.Leave, queue.Done) > 0 })
	deletes := p.calls.count("DeleteRange")
	deliver()
	eventually(t, "the end of the late key", func() bool { return p.calls.count("DeleteRange") > deletes })
	held := mustAcquire(t, start(t).at(t, lockPath(t))) // long before the lease of p ends
	mustRelease(t, held)
	if p.records.count(queue.Open, queue.Done) > 1 {
		t.Error("the session ended")
	}
}

func TestTransactionThatIsExecutedAfterTheReleaseLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, deliver := p.calls.delay(t, "Txn", 1)
	c := mustAcquire(t, p.at(t, lockPath(t))) // by the second one
	mustRelease(t, c)
	deliver()
	other := mustAcquire(t, p.at(t, lockPath(t)))
	mustRelease(t, other)
}

func TestAuditSparesWhatIsWanted(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.calls.dropReply("Txn", 1)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	w := queueAt(t, p.at(t, lockPath(t)))
	for before := p.calls.count("LeaseTimeToLive"); p.calls.count("LeaseTimeToLive") < before+2; {
		time.Sleep(10 * time.Millisecond)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	w.pending(t)
	mustRelease(t, c)
	mustRelease(t, w.must(t))
}

// A key that is being deleted is not wanted, but neither is it the audit's.
func TestAuditDoesNotMakeALossOfARelease(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.calls.dropReply("Txn", 1)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	listed, deleting := make(chan struct{}), make(chan struct{})
	p.calls.once("LeaseTimeToLive", 1, func(ctx context.Context, send func(context.Context) error) error {
		defer func() { <-deleting }()
		defer close(listed)
		return send(ctx)
	})
	p.calls.once("DeleteRange", 1, func(ctx context.Context, send func(context.Context) error) error {
		close(deleting)
		time.Sleep(100 * time.Millisecond) // for another delete
		return send(ctx)
	})
	<-listed
	mustRelease(t, c)
}

func TestTryWithoutAReplyFailsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.calls.dropReply("Txn", 1)
	if _, err := p.at(t, lockPath(t)).TryAcquire(soon(t)); err == nil {
		t.Error("tried with success, without a reply")
	}
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
}

func TestLostReplyOfAReleaseIsASuccess(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	p.calls.dropReply("DeleteRange", 1)
	mustRelease(t, c)
	eventually(t, "nothing to remove", func() bool { return p.records.count(queue.Leave, queue.Done) == 1 })
}

func TestReleaseThatWasNotHeardIsRepeated(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	p.calls.once("DeleteRange", 1, func(context.Context, func(context.Context) error) error { return errDropped })
	mustRelease(t, c)
	eventually(t, "no key", func() bool { return len(left(t, lockPath(t))) == 0 })
}

func TestTryAboveALockThatIsHeldDoesNotWaitForEtcd(t *testing.T) {
	t.Parallel()
	p := start(t)
	mustAcquire(t, p.at(t, lockPath(t)+"/below"))
	p.calls.once("Txn", 2, func(context.Context, func(context.Context) error) error {
		p.wire.sever()
		return errDropped
	})
	w := begin(t, p.at(t, lockPath(t)).TryAcquire)
	select {
	case _, ok := <-w.granted:
		if ok {
			t.Error("granted")
		}
	case <-time.After(5 * time.Second):
		t.Error("waits for etcd")
	}
}
