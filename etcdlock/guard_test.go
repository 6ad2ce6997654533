package etcdlock

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/second"
)

func TestGuardedWriteTakesEffectWhileTheLockIsOurs(t *testing.T) {
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	answer, err := c.txn(soon(t), c.Err, []clientv3.Op{clientv3.OpPut(data, "1"), clientv3.OpGet(data)})
	if err != nil || len(answer.Responses) != 2 || string(answer.Responses[1].GetResponseRange().Kvs[0].Value) != "1" {
		t.Fatalf("%v, %v", answer, err)
	}
	if !c.Idle() {
		t.Error("not idle after the answer")
	}
	removeKey(t, c.key)
	_, err = c.txn(soon(t), func() error { return nil }, []clientv3.Op{clientv3.OpPut(data, "2")})
	wantErr(t, err, second.ErrLost)
	wantErr(t, c.Err(), second.ErrLost)
	if value := valueOf(t, data); value != "1" {
		t.Errorf("a write of %q after the loss", value)
	}
	wantErr(t, c.Release(), second.ErrLost)
	_, err = c.txn(soon(t), c.Err, nil)
	wantErr(t, err, second.ErrReleased)
}

func TestErrorOfAGuardedWriteChangesNothing(t *testing.T) {
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	if _, err := c.txn(soon(t), c.Err, []clientv3.Op{clientv3.OpPut(data, "1"), clientv3.OpPut(data, "2")}); err == nil {
		t.Error("two writes of one key in one transaction")
	}
	if value := valueOf(t, data); value != "" || !c.Idle() {
		t.Errorf("wrote %q; idle %v", value, c.Idle())
	}
	mustRelease(t, c)
}

func TestGrantIsNotIdleWhileAGuardedWriteMayTakeEffect(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan struct{})
	p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
		cancel()
		<-answer
		return send(ctx)
	})
	_, err := c.txn(ctx, c.Err, []clientv3.Op{clientv3.OpPut(data, "1")})
	wantErr(t, err, context.Canceled)
	if c.Idle() {
		t.Error("idle before the answer")
	}
	close(answer)
	eventually(t, "idle", c.Idle)
	p.calls.dropReply("Txn", 1)
	if _, err := c.txn(soon(t), c.Err, []clientv3.Op{clientv3.OpPut(data, "2")}); err == nil {
		t.Error("no error though there was no answer")
	}
	if c.Idle() {
		t.Error("idle though nobody knows what becomes of a write")
	}
	mustRelease(t, c)
}

func TestLateGuardedWriteHasNoEffectUnderTheNextOwner(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	_, deliver := p.calls.delay(t, "Txn", 1)
	if _, err := c.txn(soon(t), c.Err, []clientv3.Op{clientv3.OpPut(data, "1")}); err == nil {
		t.Error("no error though there was no answer")
	}
	mustRelease(t, c)
	next := mustAcquire(t, start(t).at(t, lockPath(t)))
	deliver()
	if value := valueOf(t, data); value != "" {
		t.Errorf("a late write of %q", value)
	}
	mustRelease(t, next)
}

func TestGuardedWriteOfWhoMayNotIsNotSent(t *testing.T) {
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	before := p.calls.count("Txn")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.txn(over, c.Err, nil)
	wantErr(t, err, context.Canceled)
	_, err = c.txn(soon(t), func() error {
		if c.Idle() {
			t.Error("idle while it is asked whether the write may be sent")
		}
		return second.ErrReleased
	}, nil)
	wantErr(t, err, second.ErrReleased)
	if p.calls.count("Txn") != before || !c.Idle() {
		t.Error("sent")
	}
	mustRelease(t, c)
}

func valueOf(t *testing.T, key string) string {
	t.Helper()
	answer, err := outside(t).Get(soon(t), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

func TestGuardedWriteThatComesBehindTheReleaseTellsOfNoLoss(t *testing.T) {
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	mustRelease(t, c)
	if answer, err := c.guarded(nil); err != nil || answer.Succeeded {
		t.Fatalf("%v, %v, want that it is not there", answer, err)
	}
	if c.lost() {
		t.Errorf("lost once it was released: %v", context.Cause(c.Context()))
	}
}
