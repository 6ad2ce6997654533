package etcdlock

import (
	"cmp"
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/internal/second"
)

// txn runs ops in one transaction that takes effect only while the key is there. It sends
// nothing if check, which should include [contender.Err], returns an error. The contender is
// not idle from before that is asked. So whoever makes check fail first and then finds it idle
// may hand the lock on: no write of the former user takes effect any more.
func (c *contender) txn(ctx context.Context, check func() error, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	c.claim.store.client.Txn(ctx).Then(ops...) // panics for an op that is none, and that is for the caller to see
	c.pending.Add(1)                           // count first, look after
	if err := cmp.Or(check(), context.Cause(ctx)); err != nil {
		c.pending.Add(-1)
		return nil, err
	}
	type answer struct {
		resp *clientv3.TxnResponse
		err  error
	}
	answers := make(chan answer, 1)
	if !c.claim.store.spawn(func() {
		resp, err := c.guarded(ops)
		if classify(err) != uncertain { // else it may take effect for as long as the key is there
			c.pending.Add(-1)
		}
		answers <- answer{resp, err}
	}) {
		c.pending.Add(-1)
		return nil, second.ErrClosed
	}
	select {
	case a := <-answers:
		switch {
		case classify(a.err) == uncertain:
			return nil, fmt.Errorf("%w: %w", second.ErrUnknown, a.err)
		case a.err != nil:
			return nil, a.err
		case !a.resp.Succeeded:
			return nil, cmp.Or(check(), c.Err())
		}
		return a.resp, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", second.ErrUnknown, context.Cause(ctx))
	}
}

// guarded runs the transaction. A key that is not there has been deleted, and the lock is lost.
func (c *contender) guarded(ops []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	s := c.claim.store
	ours := clientv3.Compare(clientv3.CreateRevision(c.key), "=", c.token)
	err = s.call(s.ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Txn(ctx).If(ours).Then(ops...).Commit()
		return err
	})
	if err == nil && !resp.Succeeded {
		c.missing()
	}
	return resp, err
}
