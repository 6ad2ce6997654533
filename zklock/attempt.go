package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// An attempt is one try to acquire a lock. It runs in a goroutine of its own, because
// calls of the client library cannot be cancelled: the caller leaves when its context
// ends, the attempt goes on until its call returns and then undoes what nobody wants
// any more.
type attempt struct {
	lock   *Lock
	client *Client
	ctx    context.Context // ends when nobody wants the lock, or with the client
	once   bool            // do not wait for anything
	wait   *second.Wait    // whom to tell where the node stands; may be nil

	reported bool // that there are foreign children

	// parents are the containers that may be there without a child because of the
	// attempt; true: it made them, false: the answer was lost. Nil unless some were missing.
	parents  map[string]bool
	obstacle error // to the parents that are missing, nil if none is known

	trouble atomic.Pointer[error] // what the attempt is waiting to get over, nil if nothing
	verdict atomic.Int32          // pending, then once and for all delivered or abandoned
	done    chan struct{}
	node    *Node // the result, valid when done is closed
	err     error
}

const (
	pending   int32 = iota
	delivered       // the result goes to the caller
	abandoned       // the caller has left
)

// errGone says that a node was lost while it queued: start again at the tail.
var errGone = errors.New("lock node lost while queueing")

// start makes an attempt and waits for its result or the end of ctx.
func (l *Lock) start(ctx context.Context, w *second.Wait, run func(*attempt) (*Node, error)) (*Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	defer l.client.link.Attend()()
	ctx, cancel := l.client.link.Scope(ctx)
	if err := l.client.stragglers.await(ctx, l.path); err != nil {
		cancel()
		return nil, l.client.link.Explain(err)
	}
	a := &attempt{lock: l, client: l.client, ctx: ctx, wait: w, done: make(chan struct{})}
	if !l.client.link.Spawn(func() { a.deliver(run(a)); cancel() }) {
		cancel()
		return nil, ErrClosed
	}
	<-ctx.Done() // also when the attempt is done
	if a.verdict.CompareAndSwap(pending, abandoned) {
		l.client.stragglers.add(a)
		return nil, a.explain(context.Cause(ctx))
	}
	<-a.done // delivered a moment ago; a grant stands
	return a.node, a.err
}

// explain adds to the end of a wait what it was for, if that was trouble.
func (a *attempt) explain(cause error) error {
	if trouble := a.trouble.Load(); trouble != nil && a.client.Err() == nil {
		return fmt.Errorf("%w: %w", cause, *trouble)
	}
	return a.client.link.Explain(cause)
}

// deliver hands the result over, or undoes it when the caller has left. Both sides
// decide on the verdict, so a node is either delivered or released.
func (a *attempt) deliver(n *Node, err error) {
	a.node, a.err = n, err
	if !a.verdict.CompareAndSwap(pending, delivered) && n != nil {
		n.Release()
	}
	close(a.done)
	a.client.stragglers.remove(a) // after done: add looks at it
}

// pause waits before another try, after err, and for the connection to be back. A try
// that is made once only ends with err.
func (a *attempt) pause(pace *backoff.ExponentialBackOff, err error) error {
	if a.once {
		return errors.Join(err, a.client.Err())
	}
	if err != nil {
		a.trouble.Store(&err)
	}
	if cause := retry.Pause(a.ctx, pace.NextBackOff()); cause != nil {
		return a.explain(cause)
	}
	_, cause := a.awaitSession()
	return cause
}

// awaitSession waits for a session, unless the attempt waits for nothing.
func (a *attempt) awaitSession() (*link.Session, error) {
	if !a.once {
		return a.client.link.AwaitSession(a.ctx)
	}
	s := a.client.link.Session()
	if err := a.client.Err(); err != nil || s == nil {
		return nil, errors.Join(err, zk.ErrNoServer)
	}
	return s, nil
}
