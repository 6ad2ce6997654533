package etcdlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/tiertest"
	"github.com/tierlock/tierlock/tier"
)

func TestTier(t *testing.T) {
	e := childtest.StartEnsemble(t, etcdserver.StartEnsemble, 3, etcdserver.Config{NoSync: true})
	tiertest.Run(t, func(t *testing.T, test func(*testing.T, tiertest.Harness)) {
		test(t, ensembleHarness(t, e))
	}).Record(t, "etcd", "../docs/promises/etcd.md")
}

// ensembleHarness returns the harness with which the tier suite runs on a real etcd cluster.
func ensembleHarness(t *testing.T, e *etcdserver.Ensemble) tiertest.Harness {
	ctx := t.Context()
	check := func(err error) { need.WantErr(t, "the harness", err, nil) }
	// Each operation opens and closes a client, because a test counts goroutines.
	do := func(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
		operator, err := clientv3.New(clientv3.Config{Endpoints: e.Addrs(), Logger: zap.NewNop()})
		if err != nil {
			return clientv3.OpResponse{}, err
		}
		defer operator.Close()
		return operator.Do(ctx, op)
	}
	keysOf := func(ctx context.Context, prefix string) ([]*mvccpb.KeyValue, error) {
		answer, err := do(ctx, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)))
		if err != nil {
			return nil, err
		}
		return answer.Get().Kvs, nil
	}
	left := func(prefix string) int {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // the caller repeats this request
		defer cancel()
		keys, err := keysOf(ctx, prefix)
		keys = slices.DeleteFunc(keys, func(kv *mvccpb.KeyValue) bool { return string(kv.Key) == numberKey(prefix) })
		if err != nil {
			return -1
		}
		return len(keys)
	}
	return tiertest.Harness{
		Lease: brief,
		Dial: func(tb testing.TB, lease time.Duration) *tiertest.Process {
			p := launch(tb, e.Addrs(), tier.WithLeaseTTL(lease))
			return &tiertest.Process{
				Tier: withClient{p},
				Cut:  p.calls.sever,
				Kill: func() {
					p.calls.sever()
					p.calls.on("LeaseRevoke", func(call) (bool, error) { return true, errDropped }) // the process ends without a Goodbye
					p.end()
				},
				Messages: p.calls.messages,
				Blind:    func(g second.Grant) { g.(*queue.Contender).StopWatchdog() },
				Sleep:    func(g second.Grant, d time.Duration) { g.(*queue.Contender).Clock().Suspend(d) },
			}
		},
		Left:        func(path string) int { return left(path + "/") },
		LeftPermits: func(path string) int { return left(path + "//permits/") },
		Writes: func() int64 {
			answer, err := do(soon(t), clientv3.OpGet("/"))
			if err != nil {
				t.Error(err)
				return 0
			}
			return answer.Get().Header.Revision
		},
		Remove: func(path string, i int) {
			keys, err := keysOf(soon(t), path+"/")
			if err == nil && len(keys) <= i {
				err = errors.New("no server answers")
			}
			if err == nil {
				_, err = do(soon(t), clientv3.OpDelete(string(keys[i].Key)))
			}
			check(err)
		},
		Freeze: func() (thaw func()) {
			check(e.Pause())
			return func() { check(e.Resume()) }
		},
		Failover: func() { check(e.Failover(ctx)) },
		Restart:  func() { check(e.Restart(ctx)) },
	}
}

// withClient closes the process's client together with its registry, because the suite closes no clients.
type withClient struct{ *process }

func (p withClient) Close() error {
	p.end()
	return nil
}
