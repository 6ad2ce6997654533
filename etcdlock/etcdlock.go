package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// New returns the locks of this process in the etcd of client. The program keeps the client and closes it after the registry, whose
// Close revokes the lease. If the client is closed first, every lock is lost at once.
//
// New does not wait for etcd, as it has no context to end that: it asks for a lease in the background. Acquisitions wait for that,
// and a try until it is known whether etcd can be reached. An error says which option is wrong; then nothing is left.
func New(client *clientv3.Client, opts ...Option) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err == nil && client == nil {
		err = errors.New("nil client")
	}
	if err != nil {
		return nil, fmt.Errorf("etcdlock: %w", err)
	}
	return tier.New(open(client, o).tier, share...), nil
}

// Txn runs ops in one etcd transaction that takes effect only while the lock of hold is ours: an exact fence for data in the same
// etcd. To add conditions, pass a [clientv3.OpTxn]. The server limits the number of ops, to 128 by default.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or is one with which etcd refuses the transaction,
// or ctx had ended before, or the lock is not one on etcd. When the answer is lost, or does not come within a sixth of the lease
// TTL, or ctx ends first, the error wraps [tier.ErrUnknown], and the cause of ctx: ops may still take effect, but never after the
// lock went to another process. Until the outcome is known the lock is not handed on within the process either; if it never is
// known, the lock leaves the process with the release.
func Txn(ctx context.Context, hold *tier.Hold, ops ...clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	c, _ := second.GrantOf(hold).(*queue.Contender)
	s, ok := c.Store().(*store)
	if !ok {
		return nil, fmt.Errorf("etcdlock: transaction under %s: that lock is not on etcd", hold.Path())
	}
	s.client.Txn(ctx).Then(ops...)   // panics for an op that is none, and that is for the caller to see
	var answer *clientv3.TxnResponse // whoever does not wait for the end does not look at it
	err = c.Write(ctx, hold.Err, func() (queue.Outcome, error) {
		err := s.call(s.tier.Context(), func(ctx context.Context) (err error) {
			answer, err = s.client.Txn(ctx).If(created(c.Ref())).Then(ops...).Commit()
			return err
		})
		if err == nil && !answer.Succeeded { // the key was deleted
			err = c.Missing()
			return queue.Done, cmp.Or(hold.Err(), err)
		}
		return outcomeOf(err), err
	})
	if err != nil {
		return nil, fmt.Errorf("etcdlock: transaction under %s: %w", hold.Path(), err)
	}
	return answer, nil
}
