package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

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
	r := mustAcquire(t, p.in(t, lockPath(t)+"2", second.Reading))
	w := queueAt(t, p.at(t, lockPath(t)))
	audits := p.records.count(queue.Audit, queue.Done)
	eventually(t, "two audits", func() bool { return p.records.count(queue.Audit, queue.Done) > audits+1 })
	if n := p.calls.count("DeleteRange"); n > 0 {
		t.Errorf("%d deletes", n)
	}
	w.pending(t)
	mustRelease(t, r)
	mustRelease(t, c)
	mustRelease(t, w.must(t))
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
