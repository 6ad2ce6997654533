package etcdlock

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

func TestGuardedWriteTakesEffectWhileTheLockIsOurs(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	answer, err := guarded(soon(t), c, c.Err, []clientv3.Op{clientv3.OpPut(data, "1"), clientv3.OpGet(data)})
	if err != nil || len(answer.Responses) != 2 || string(answer.Responses[1].GetResponseRange().Kvs[0].Value) != "1" {
		t.Fatalf("%v, %v", answer, err)
	}
	if !c.Idle() {
		t.Error("not idle after the answer")
	}
	removeKey(t, keyOf(c.Ref()))
	_, err = guarded(soon(t), c, func() error { return nil }, []clientv3.Op{clientv3.OpPut(data, "2")})
	wantErr(t, err, second.ErrLost)
	wantErr(t, c.Err(), second.ErrLost)
	if value := valueOf(t, data); value != "1" {
		t.Errorf("a write of %q after the loss", value)
	}
	wantErr(t, c.Release(), second.ErrLost)
	_, err = guarded(soon(t), c, c.Err, nil)
	wantErr(t, err, second.ErrReleased)
}

func TestErrorOfAGuardedWriteChangesNothing(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	if _, err := guarded(soon(t), c, c.Err, []clientv3.Op{clientv3.OpPut(data, "1"), clientv3.OpPut(data, "2")}); err == nil {
		t.Error("two writes of one key in one transaction")
	}
	if value := valueOf(t, data); value != "" || !c.Idle() {
		t.Errorf("wrote %q; idle %v", value, c.Idle())
	}
	mustRelease(t, c)
}

// Whoever gets ErrUnknown has to look, and whoever gets ErrLost or a refusal need not.
func TestErrorOfAGuardedWriteSaysWhetherItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		trouble func(t *testing.T, p *process, hold *tier.Hold, end context.CancelCauseFunc) // for the write
		op      func(data string) clientv3.Op
		want    []error
		not     []error
	}{
		"the answer is lost": {
			trouble: func(_ *testing.T, p *process, _ *tier.Hold, _ context.CancelCauseFunc) { p.calls.dropReply("Txn", 1) },
			want:    []error{tier.ErrUnknown}, not: []error{tier.ErrLost},
		},
		"the context ends first": {
			trouble: func(_ *testing.T, p *process, _ *tier.Hold, end context.CancelCauseFunc) {
				p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
					end(mine)
					<-ctx.Done()
					return send(ctx)
				})
			},
			want: []error{tier.ErrUnknown, mine}, not: []error{tier.ErrLost},
		},
		"the registry is closed": {
			trouble: func(_ *testing.T, p *process, _ *tier.Hold, _ context.CancelCauseFunc) {
				p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
					go p.Close()
					<-ctx.Done()
					return send(ctx)
				})
			},
			want: []error{tier.ErrUnknown, tier.ErrClosed}, not: []error{tier.ErrLost},
		},
		"the server refuses it": {
			op:  func(data string) clientv3.Op { return clientv3.OpPut(data, "1", clientv3.WithLease(1)) },
			not: []error{tier.ErrUnknown, tier.ErrLost},
		},
		"the server does not have that revision yet": {
			op:  func(data string) clientv3.Op { return clientv3.OpGet(data, clientv3.WithRev(1<<40)) },
			not: []error{tier.ErrUnknown, tier.ErrLost},
		},
		"the lock is lost": {
			trouble: func(t *testing.T, p *process, hold *tier.Hold, _ context.CancelCauseFunc) {
				p.calls.once("Txn", 1, func(ctx context.Context, send func(context.Context) error) error {
					removeKey(t, keyOf(hold.Grant().(*queue.Contender).Ref()))
					return send(ctx)
				})
			},
			want: []error{tier.ErrLost}, not: []error{tier.ErrUnknown},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, path := start(t), lockPath(t)
			locks, err := tier.New(p.Tier)
			if err != nil {
				t.Fatal(err)
			}
			hold, err := locks.Mutex(path).Acquire(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancelCause(soon(t))
			defer end(nil)
			op := clientv3.OpPut(path+"-data", "1")
			if c.op != nil {
				op = c.op(path + "-data")
			}
			if c.trouble != nil {
				c.trouble(t, p, hold, end)
			}
			_, err = Txn(ctx, hold, op)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				wantErr(t, err, want)
			}
			for _, not := range c.not {
				if errors.Is(err, not) {
					t.Errorf("error %v, which is not %v", err, not)
				}
			}
		})
	}
}

// The client panics for it, and must not do so where nobody can recover.
func TestGuardedWriteThatIsNonePanicsInItsCaller(t *testing.T) {
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	defer func() {
		if recover() == nil || !c.Idle() {
			t.Errorf("no panic, or not idle")
		}
		mustRelease(t, c)
	}()
	_, err := guarded(soon(t), c, c.Err, []clientv3.Op{{}})
	t.Errorf("no panic: %v", err)
}

func TestLateGuardedWriteHasNoEffectUnderTheNextOwner(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := mustAcquire(t, p.at(t, lockPath(t)))
	data := lockPath(t) + "-data"
	_, deliver := p.calls.delay(t, "Txn", 1)
	if _, err := guarded(soon(t), c, c.Err, []clientv3.Op{clientv3.OpPut(data, "1")}); err == nil {
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
	t.Parallel()
	c := mustAcquire(t, start(t).at(t, lockPath(t)))
	mustRelease(t, c)
	_, err := guarded(soon(t), c, func() error { return nil }, nil)
	wantErr(t, err, second.ErrReleased)
	if c.Context().Err() != nil {
		t.Errorf("lost once it was released: %v", context.Cause(c.Context()))
	}
}
