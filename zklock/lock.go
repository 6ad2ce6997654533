package zklock

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A Lock is a lock path, seen by one client. Each acquisition is a contender of its own
// with its own znode, so two acquisitions of one Lock exclude each other like those of
// different processes. It is safe for concurrent use.
//
// Many goroutines of one process that want the same lock are better served by package
// tier, which queues them locally behind a single node.
type Lock struct {
	client *Client
	path   string
}

// Lock returns the lock at path, which is created with its parents when it is first
// acquired. The error says what is wrong with path; see [ValidatePath].
func (c *Client) Lock(path string) (*Lock, error) {
	if err := ValidatePath(path); err != nil {
		return nil, err
	}
	return &Lock{client: c, path: path}, nil
}

// Path returns the path of the lock.
func (l *Lock) Path() string { return l.path }

// Acquire queues for the lock and waits until it is held, ctx is done, or an error
// comes that another try would not mend, such as missing permissions or
// [ErrSequenceExhausted]. An unreachable ZooKeeper is not such an error. If the session
// expires while waiting, the place in the queue is lost and Acquire starts again at the
// tail.
//
// When ctx is done, the error wraps its cause, and the reason if ZooKeeper cannot be
// reached. After any error no node of this acquisition stays in the queue: it is
// deleted, if need be in the background, or dies with its session.
func (l *Lock) Acquire(ctx context.Context) (*Node, error) {
	n, err := l.start(ctx, (*attempt).acquire)
	if err != nil {
		return nil, fmt.Errorf("zklock: acquire %s: %w", l.path, err)
	}
	return n, nil
}

// TryAcquire is Acquire without waiting for others: if somebody has the lock or queues
// for it, it returns [ErrLocked]. That costs one read; only if nobody is seen, a node
// is created (and deleted again if somebody was faster). While ZooKeeper cannot be
// reached it fails at once, with an error wrapping [zk.ErrNoServer].
func (l *Lock) TryAcquire(ctx context.Context) (*Node, error) {
	n, err := l.start(ctx, (*attempt).try)
	if err != nil {
		return nil, fmt.Errorf("zklock: try %s: %w", l.path, err)
	}
	return n, nil
}

// Requeue gives the lock up and queues for it again, in one transaction: the node goes
// and a new one joins the tail of the queue, at the price of a single write. It then
// waits like Acquire, with the same results. The lock of n is given up in any case;
// [Node.AwaitRelease] waits for that.
func (n *Node) Requeue(ctx context.Context) (*Node, error) {
	if n.spent.Swap(true) {
		return nil, ErrReleased
	}
	loss := n.lossNow()
	n.session.leave(n)
	if loss != nil {
		n.leaveToReaper(loss)
		return n.lock.Acquire(ctx)
	}
	var begun atomic.Bool // whoever sets it sees to the end of n
	next, err := n.lock.start(ctx, func(a *attempt) (*Node, error) {
		if begun.Swap(true) {
			return nil, context.Cause(a.ctx)
		}
		return a.requeue(n)
	})
	if err != nil {
		if !begun.Swap(true) {
			n.delete()
		}
		return nil, fmt.Errorf("zklock: requeue %s: %w", n.lock.path, err)
	}
	return next, nil
}
