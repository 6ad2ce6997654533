package etcdlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

func data(t *testing.T) string { return lockPath(t) + "-data" }

func wantData(t *testing.T, want string) {
	t.Helper()
	answer, err := outside(t).Get(soon(t), data(t))
	got := ""
	if err == nil && len(answer.Kvs) > 0 {
		got = string(answer.Kvs[0].Value)
	}
	need.WantErr(t, "Get", err, nil)
	need.Equal(t, "written", got, want)
}

func TestTxnTakesEffectWhileTheLockIsOurs(t *testing.T) {
	t.Parallel()
	locks := tier.New(start(t), tier.WithLinger(time.Hour))
	hold := mustHold(t, locks)
	answer, err := Txn(soon(t), hold, clientv3.OpPut(data(t), "1"), clientv3.OpGet(data(t)))
	need.Must(t, fmt.Sprintf("%v, %v", answer, err),
		err == nil && len(answer.Responses) == 2 && string(answer.Responses[1].GetResponseRange().Kvs[0].Value) == "1")
	need.That(t, "not idle after the answer", waittest.Grant(hold).Idle())
	need.OK(t, hold.Release())
	need.That(t, "the lock has not stayed in the process", len(left(t)) == 1)
	wantErr(t, need.ErrOf(Txn(soon(t), hold, clientv3.OpPut(data(t), "2"))), tier.ErrReleased)
	wantData(t, "1")
}

// After ErrUnknown, a caller has to read whether its write took effect. After ErrLost or a refusal, the write had no effect.
func TestErrorOfATxnSaysWhetherItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	type row struct {
		ops     []clientv3.Op // additional operations; each transaction also puts a key
		trouble func(t *testing.T, p *process, key string)
		want    []error
	}
	need.Each(t, map[string]row{
		"the answer is lost": {
			trouble: func(_ *testing.T, p *process, _ string) { p.calls.drop("Txn") },
			want:    []error{tier.ErrUnknown},
		},
		"the registry is closed": {
			trouble: func(_ *testing.T, p *process, _ string) {
				p.calls.once("Txn", 1, func(one call) error {
					go p.Close()
					<-one.Done()
					return one.send(one)
				})
			},
			want: []error{tier.ErrUnknown, tier.ErrClosed},
		},
		"the lock is lost": {
			trouble: func(t *testing.T, p *process, key string) {
				p.calls.once("Txn", 1, func(one call) error {
					does(t, clientv3.OpDelete(key))
					return one.send(one)
				})
			},
			want: []error{tier.ErrLost},
		},
		"the server refuses it":     {ops: []clientv3.Op{clientv3.OpPut("data", "1", clientv3.WithLease(1))}},
		"it writes twice to a key":  {ops: []clientv3.Op{clientv3.OpPut("data", "1"), clientv3.OpPut("data", "2")}},
		"there is no such revision": {ops: []clientv3.Op{clientv3.OpPut("data", "1"), clientv3.OpGet("data", clientv3.WithRev(1<<40))}},
	}, func(t *testing.T, c row) {
		t.Parallel()
		p := start(t, tier.WithLeaseTTL(brief))
		hold := mustHold(t, tier.New(p))
		if c.trouble != nil {
			c.trouble(t, p, keyOf(waittest.Grant(hold).(*queue.Contender).Ref()))
		}
		_, err := Txn(soon(t), hold, append(c.ops, clientv3.OpPut(data(t), "1"))...)
		need.That(t, "no error", err != nil)
		for _, want := range c.want {
			wantErr(t, err, want)
		}
		for _, not := range []error{tier.ErrUnknown, tier.ErrLost} {
			need.That(t, fmt.Sprintf("error %v, which is not %v", err, not), !errors.Is(err, not) || len(c.want) > 0 && errors.Is(c.want[0], not))
		}
		if !errors.Is(err, tier.ErrUnknown) {
			wantData(t, "")
			need.That(t, "not idle though it is known", waittest.Grant(hold).Idle())
		}
	})
}

// The client panics for an invalid operation. The panic has to be in the caller's goroutine, where the caller can recover.
func TestTxnThatIsNonePanicsInItsCaller(t *testing.T) {
	t.Parallel()
	hold := mustHold(t, tier.New(start(t)))
	defer func() { need.That(t, "no panic, or not idle", recover() != nil && waittest.Grant(hold).Idle()) }()
	_, err := Txn(soon(t), hold, clientv3.Op{})
	t.Errorf("no panic: %v", err)
}
