package zknode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Tier returns a client as the second tier of a registry. From then on the client belongs to that registry.
func Tier(c *Client) second.Tier { return secondTier{c} }

// Ask calls question until it gets a final answer, or until ctx or the client ends. The parameter path is the path of a lock of the client.
func Ask[T any](ctx context.Context, c *Client, what, path string, question func(zkqueue.Path) (T, error)) (T, error) {
	return ask(ctx, c, what+" "+path, func() (T, error) { return question(zkqueue.Path{Conn: c.link.Conn, Name: c.absolute(path)}) })
}

// A secondTier is a client with the methods that a registry of package tier calls.
type secondTier struct{ *Client }

func (t secondTier) Claim(path string, o second.Options) (second.Claim, error) {
	var opts []LockOption
	for _, opt := range o.Own {
		own, ok := opt.(LockOption)
		if !ok {
			return nil, fmt.Errorf("zklock: lock %s: option of type %T; want a zknode.LockOption or a tier.Option", path, opt)
		}
		opts = append(opts, own)
	}
	l, err := t.Lock(path, opts...)
	if err != nil {
		return nil, err
	}
	l.mode, l.linger = o.Mode, o.MayLinger
	return claim{l}, nil
}

// Err returns nil, or the reason why ZooKeeper cannot be reached.
func (t secondTier) Err() error { return second.Unavailable(t.Client.Err()) }

// The function tried returns the error of a try. The result also wraps [second.ErrUnavailable] if another try may succeed, that is, unless
// err is about the path, the permissions or the caller.
func tried(ctx context.Context, err error) error {
	final := errors.Is(err, second.ErrLocked) || errors.Is(err, second.ErrTooManyPermits) || classify(err) == permanent
	if err == nil || final || ctx.Err() != nil {
		return err
	}
	return second.Unavailable(err)
}

// Context returns a context that ends with the client.
func (t secondTier) Context() context.Context { return t.link.Context() }

// Notify registers f. Over a connection that the program has made, f is never called.
func (t secondTier) Notify(f func(second.Connection)) { t.link.Notice.Notify(f) }

// GracePeriod returns nil, because an ensemble that answers always knows the holders.
func (t secondTier) GracePeriod() *second.GracePeriodError { return nil }

// Refusal returns why acquisitions are refused although there is a session. It returns nil if they are not refused.
func (t secondTier) Refusal() error { return second.Unavailable(t.refusals.Err()) }

// Groups returns the numbers of combined requests and of the batches in them, as package link counts them.
func (t secondTier) Groups() (requests, commands int64) {
	return t.link.Groups.Load(), t.link.Grouped.Load()
}

// Now returns the time of the clock of the leases.
func (t secondTier) Now() time.Duration { return t.link.Now() }

// Logger returns the logger of the client.
func (t secondTier) Logger() *slog.Logger { return t.options.Logger }

// Reaping returns the number of nodes that still have to be deleted in the background.
func (t secondTier) Reaping() int { return t.reaper.count() }

// A claim is a lock whose nodes are granted to the gate of package tier.
type claim struct{ lock *Lock }

func (c claim) Acquire(ctx context.Context, w *second.Wait) (second.Grant, error) {
	return granted(run(ctx, c.lock.attempt(w), "acquire "+c.lock.path, (*attempt).acquire, (*Node).Release))
}

func (c claim) TryAcquire(ctx context.Context) (second.Grant, error) {
	n, err := c.lock.TryAcquire(ctx)
	return granted(n, tried(ctx, err))
}

func (c claim) Requeue(ctx context.Context, old second.Grant, w *second.Wait) (second.Grant, error) {
	return granted(c.lock.requeue(ctx, old.(grant).Node, w))
}

func (c claim) Contenders(ctx context.Context) ([]second.Contender, error) {
	l := c.lock
	queue, err := ask(ctx, l.client, "contenders of "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Contenders(ctx) })
	return each(queue, zkqueue.Contender.ForGate), err
}

// Equal assumes that other is a claim of this package, because a registry has only one tier.
func (c claim) Equal(other second.Claim) bool { return c.lock.equal(other.(claim).lock) }

func (c claim) Revoke(ctx context.Context) error {
	l := c.lock
	_, err := ask(ctx, l.client, "revoke "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Revoke(ctx) })
	return err
}

func (c claim) Break(ctx context.Context, token int64) error {
	return c.lock.client.breakAt(ctx, c.lock.queue(), token)
}

// breakAt deletes the nodes that have the given token at a path.
func (c *Client) breakAt(ctx context.Context, path zkqueue.Path, token int64) error {
	ctx, cancel := context.WithCancel(ctx)
	b := zkqueue.Breaking{Token: token}
	deleted, err := ask(ctx, c, "break "+path.Name, func() (bool, error) { return b.Try(ctx, path) })
	cancel() // a try that is still in progress sends no deletion after this
	switch {
	case err != nil && b.Asked():
		return fmt.Errorf("%w: %w", second.ErrUnknown, err)
	case err == nil && !deleted:
		return fmt.Errorf("zklock: break %s: %w", path.Name, second.NoToken(token))
	}
	return err
}

// granted returns a nil interface after an error: a grant with a nil node would not equal nil.
func granted(n *Node, err error) (second.Grant, error) {
	if err != nil {
		return nil, err
	}
	return grant{n}, nil
}
