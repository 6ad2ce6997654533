package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/tier"
)

// New returns a registry of locks in etcd. It blocks until etcd has granted a lease or ctx ends: give ctx a deadline.
//
// If an option is wrong, or etcd refuses a request because of a missing permission, New fails at once. If etcd cannot be reached, the error
// wraps the cause of ctx and names the endpoints. If New returns an error, it leaves no data in etcd. The end of ctx has no effect after
// New has returned.
//
// Close the registry before the client. Closing the registry revokes the lease. If the client is closed first, all locks are lost at once.
//
// Locks survive a failover of etcd, unless a leader is stopped for most of a TTL and then resumes. Caution: a restored etcd has no grace
// period. See "Limits" in the documentation of this package.
func New(ctx context.Context, client *clientv3.Client, opts ...tier.RegistryOption) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err == nil && client == nil {
		err = errors.New("nil client")
	}
	if err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	t := open(client, o).tier
	if !o.Lazy {
		err = t.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	return tier.New(t, share...), nil
}

// Txn is the guarded write of etcd. It executes ops in one transaction. The transaction takes effect only while this process holds all
// locks of guard, a [*tier.Hold] or a [*tier.Bundle]. Txn takes one round trip, and blocks for at most a sixth of the lease TTL. To add
// conditions, pass a [clientv3.OpTxn]. By default the server allows at most 128 ops and at most 128 locks.
//
// If the error wraps [tier.ErrUnknown], the outcome is ambiguous, because no answer arrived in time. The ops may still take effect, but not
// after another process has acquired one of the locks. Until the outcome is known, the locks are not handed off within this process. If the
// outcome is still unknown at the release, the locks go back to etcd. After any other error the data is unchanged. Such an error wraps
// [tier.ErrLost] or [tier.ErrReleased], is a refusal by etcd, or says that ctx had already ended, or that the locks belong to different
// registries.
func Txn(ctx context.Context, guard tier.Guard, ops ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	locks, err := tier.GuardOf(guard)
	if err != nil {
		return nil, fmt.Errorf("etcdlock: transaction: %w", err)
	}
	s, all, err := queue.Guarding[*store](locks, "etcd")
	if err == nil {
		resp, err = s.transact(ctx, all, locks.Check, ops)
	}
	if err != nil {
		return nil, fmt.Errorf("etcdlock: transaction guarded by %s: %w", locks.Path, err)
	}
	return resp, nil
}

// transact executes ops in a transaction that requires the keys of all these contenders.
func (s *store) transact(ctx context.Context, all []*queue.Contender, check func() error, ops []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	s.client.Txn(ctx).Then(ops...) // an invalid op panics here, in the goroutine of the caller
	var there []clientv3.Cmp
	var look []clientv3.Op // if the transaction fails, these reads show which keys are missing
	for _, c := range all {
		there = append(there, created(c.Ref()))
		if len(all) > 1 {
			look = append(look, clientv3.OpGet(keyOf(c.Ref()), clientv3.WithKeysOnly()))
		}
	}
	var answer *clientv3.TxnResponse // read only after Write has returned nil, so there is no data race
	err := queue.Write(ctx, all, check, func() (queue.Outcome, error) {
		err := s.call(s.tier.Context(), func(ctx context.Context) (err error) {
			answer, err = s.client.Txn(ctx).If(there...).Then(ops...).Else(look...).Commit()
			return err
		})
		if err == nil && !answer.Succeeded { // a key was deleted
			err = missing(all, answer)
			return queue.Done, cmp.Or(check(), err)
		}
		return outcomeOf(err), err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// The function missing is called when a transaction has not found the key of a contender. It records which contenders have lost their lock.
func missing(all []*queue.Contender, answer *clientv3.TxnResponse) (err error) {
	for i, c := range all {
		if len(all) > 1 {
			keys := answer.Responses[i].GetResponseRange().Kvs
			if len(keys) > 0 && keys[0].CreateRevision == c.Token() {
				continue
			}
		}
		err = cmp.Or(err, c.Missing())
	}
	return err
}
