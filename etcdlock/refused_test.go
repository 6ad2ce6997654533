package etcdlock

import (
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
)

// A server that refuses writes still renews leases. Only Refusal shows the problem.
func TestServerThatRefusesWritesIsToldOf(t *testing.T) {
	for mention, refusal := range map[string]error{"space exceeded": rpctypes.ErrGRPCNoSpace, "corrupt cluster": rpctypes.ErrGRPCCorrupt} {
		t.Run(mention, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			var refuses atomic.Bool
			p.calls.on("Txn", func(call) (bool, error) { return refuses.Load(), refusal })
			waittest.RefusalTold(t, tier.New(p), func() (heal func()) {
				refuses.Store(true)
				return func() { refuses.Store(false) }
			}, mention)
		})
	}
}
