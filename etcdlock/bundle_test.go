package etcdlock

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

func TestTxnChecksAllLocksOfABundle(t *testing.T) {
	t.Parallel()
	locks, other := tier.New(start(t)), tier.New(start(t))
	waittest.Guarded{
		Write: func(g tier.Guard) error {
			_, err := Txn(soon(t), g, clientv3.OpPut(data(t), "x"))
			return err
		},
		Count: func() int { return int(need.Get(outside(t).Get(soon(t), data(t)))(t).Kvs[0].Version) },
		Break: func(path string) {
			need.Get(outside(t).Delete(soon(t), prefixOf(queue.Ref{Path: path}), clientv3.WithPrefix()))(t)
		},
	}.ChecksAllLocks(t, locks, other)
}
