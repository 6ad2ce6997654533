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

// New returns the locks of this process in the etcd of client. The program keeps the client and closes it after the registry, whose
// Close revokes the lease. If the client is closed first, every lock is lost at once.
//
// New waits until etcd has granted a lease, or ctx is done, so give ctx a deadline. A wrong option is an error at once. If etcd cannot be
// reached, the error wraps the cause of ctx and names the endpoints. If etcd refuses the lease, for example for want of a permission, the
// error says why, at once. After an error nothing is left. Once New has returned, the end of ctx has no effect.
//
// Locks survive a fail-over of etcd, unless a leader that was stopped for most of a TTL goes on. Caution: a restored etcd has no grace
// period. See "What is not promised" in the documentation of this package.
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

// Txn runs ops in one etcd transaction that takes effect only while all locks of guard, a [*tier.Hold] or a [*tier.Bundle], are ours: an
// exact fence for data in the same etcd. To add conditions, pass a [clientv3.OpTxn]. The server limits the number of ops, and that of
// locks, to 128 by default.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or is one with which etcd refuses the transaction,
// or ctx had ended before, or the locks are not all of one registry on etcd. When the answer is lost, or does not come within a sixth
// of the lease TTL, or ctx ends first, the error wraps [tier.ErrUnknown], and the cause of ctx: ops may still take effect, but never
// after one of the locks went to another process. Until the outcome is known no lock is handed on within the process either; if it never
// is known, the locks leave the process with the release.
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
		return nil, fmt.Errorf("etcdlock: transaction under %s: %w", locks.Path, err)
	}
	return resp, nil
}

// transact runs ops if the keys of all these contenders are there.
func (s *store) transact(ctx context.Context, all []*queue.Contender, check func() error, ops []clientv3.Op,
) (*clientv3.TxnResponse, error) {
	s.client.Txn(ctx).Then(ops...) // panics for an op that is none, and that is for the caller to see
	var there []clientv3.Cmp
	var look []clientv3.Op // which of several keys is not
	for _, c := range all {
		there = append(there, created(c.Ref()))
		if len(all) > 1 {
			look = append(look, clientv3.OpGet(keyOf(c.Ref()), clientv3.WithKeysOnly()))
		}
	}
	var answer *clientv3.TxnResponse // whoever does not wait for the end does not look at it
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

// missing notes whose keys a transaction has not found.
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
