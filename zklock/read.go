package zklock

import (
	"cmp"
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
)

// Get reads a node. Paths are below that of the connect string, like those of locks and of
// [Node.Multi]; give that the version which was read, since a server may lag.
//
// Get waits for a server that cannot be reached until ctx is done; the error then wraps its
// cause. A node that is not there is [zk.ErrNoNode].
func (c *Client) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	n, err := ask(ctx, c, func(context.Context) (n znodeRead, err error) {
		n.data, n.stat, err = c.link.Conn.Get(c.absolute(path))
		return n, lacking("READ", path, err)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("zklock: get %s: %w", path, err)
	}
	return n.data, n.stat, nil
}

// Children lists the names below a path, in no order, and reads the stat of the path. It is
// otherwise like [Client.Get].
func (c *Client) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	n, err := ask(ctx, c, func(context.Context) (n znodeRead, err error) {
		n.children, n.stat, err = c.link.Conn.Children(c.absolute(path))
		return n, lacking("READ", path, err)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("zklock: children of %s: %w", path, err)
	}
	return n.children, n.stat, nil
}

// Inspect reads the node of a contender that [ParseQueue] found among the children of path. A
// node that has gone meanwhile is [zk.ErrNoNode]; one that may not be read is no error.
func (c *Client) Inspect(ctx context.Context, path string, q Contender) (Contender, error) {
	q, err := ask(ctx, c, func(context.Context) (Contender, error) {
		read := q
		return read, c.fill(c.absolute(path), &read)
	})
	if err != nil {
		return Contender{}, fmt.Errorf("zklock: node %s of %s: %w", q.Node, path, err)
	}
	return q, nil
}

type znodeRead struct {
	data     []byte
	children []string
	stat     *zk.Stat
}

// absolute returns a path as the server knows it.
func (c *Client) absolute(path string) string {
	if path == "/" {
		return cmp.Or(c.chroot, "/")
	}
	return c.pathBelow(path)
}

// ask asks until there is an answer, ctx ends or the client does. No call of the library can be
// ended, so the question is asked elsewhere.
func ask[T any](ctx context.Context, c *Client, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := c.link.Scope(ctx)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	if !c.link.Spawn(func() {
		value, err := insist(ctx, c, question)
		answers <- answer{value, err}
	}) {
		return *new(T), ErrClosed
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
		return *new(T), c.link.Explain(context.Cause(ctx))
	}
}

// insist repeats a question as long as another time may help.
func insist[T any](ctx context.Context, c *Client, question func(context.Context) (T, error)) (value T, err error) {
	for pace := retry.New(); ; {
		if _, err := c.link.AwaitSession(ctx); err != nil {
			return value, err
		}
		value, err = question(ctx)
		switch classify(err) {
		case done, missing, permanent:
			return value, err
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return value, c.link.Explain(err)
		}
	}
}
