package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// Multi runs ZooKeeper operations (as in [zk.Conn.Multi]) in one transaction that takes
// effect only while this node exists: an exact fence for data that lives in the same
// ensemble. It returns the results of ops.
//
// Nothing was changed when the error wraps [ErrLost] or [ErrReleased], or is that of
// one of the operations, or ctx had ended before. When the answer is lost, or ctx ends
// first, the error wraps [ErrUnknown], and the cause: the operations may then still take
// effect, but never after the lock went to somebody else.
func (n *Node) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return n.MultiIf(ctx, n.Err, ops...)
}

// MultiIf is [Node.Multi] for a user of the node who may lose the right to it before the
// node goes: it sends nothing if check, which should include [Node.Err], returns an
// error. A write counts from before that is asked. So whoever makes check fail first and
// then finds that nobody is writing may hand the node on: no write of the former user
// takes effect any more.
func (n *Node) MultiIf(ctx context.Context, check func() error, ops ...any) ([]zk.MultiResponse, error) {
	results, err := n.multi(ctx, check, ops)
	if err != nil {
		return nil, fmt.Errorf("zklock: multi under %s: %w", n.Path(), err)
	}
	return results, nil
}

func (n *Node) multi(ctx context.Context, check func() error, ops []any) ([]zk.MultiResponse, error) {
	if err := checkOperations(ops); err != nil {
		return nil, err
	}
	n.writing.Add(1) // count first, look after: see MultiIf
	err := check()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		n.writing.Add(-1)
		return nil, err
	}
	type answer struct {
		guards  znodes
		results []zk.MultiResponse
		err     error
	}
	answers := make(chan answer, 1)
	if !n.lock.client.link.Spawn(func() {
		defer n.writing.Add(-1)
		guards, unpin := n.pin()
		defer unpin()
		if err := n.recheck(guards, check); err != nil {
			answers <- answer{err: err}
			return
		}
		all := append(guards.checks(), n.lock.client.below(ops)...)
		results, err := n.lock.client.link.Conn.Multi(all...)
		switch {
		case err == nil && len(results) != len(all):
			err = fmt.Errorf("%w: the server answered %d results to %d operations", ErrUnknown, len(results), len(all))
		case len(results) == 0 && classify(err) == uncertain:
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		answers <- answer{guards, results, err}
	}) {
		n.writing.Add(-1)
		return nil, ErrClosed
	}
	select {
	case a := <-answers:
		for i, r := range a.results {
			if i < len(a.guards) && errors.Is(r.Error, zk.ErrNoNode) {
				return nil, cmp.Or(check(), errDeleted(a.guards[i].path))
			}
		}
		if a.err != nil {
			return nil, a.err
		}
		return n.lock.client.above(a.results[len(a.guards):]), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
}

// checkOperations refuses what the library would: nothing of that is sent.
func checkOperations(ops []any) error {
	for _, op := range ops {
		missing := false
		switch op := op.(type) {
		case *zk.CreateRequest:
			missing = op == nil
		case *zk.DeleteRequest:
			missing = op == nil
		case *zk.SetDataRequest:
			missing = op == nil
		case *zk.CheckVersionRequest:
			missing = op == nil
		default:
			return fmt.Errorf("unknown operation type %T", op)
		}
		if missing {
			return fmt.Errorf("a %T that is nil: %w", op, zk.ErrUnhandledFieldType)
		}
	}
	return nil
}

// recheck is for a node that may have become a reader's since check was asked, whose user then has
// to be one.
func (n *Node) recheck(guards znodes, check func() error) error {
	switch {
	case n.sharing == nil:
		return nil
	case guards == nil: // lost or given up
		return cmp.Or(check(), n.Err(), ErrLost)
	}
	return check()
}

// below returns operations as they are for a server that knows nothing of the path which all
// others are below.
func (c *Client) below(ops []any) []any {
	if c.chroot == "" {
		return ops
	}
	var all []any
	for _, op := range ops {
		switch op := op.(type) {
		case *zk.CreateRequest:
			q := *op
			if q.Path = c.pathBelow(q.Path); op.Path == "/" && q.Flags&zk.FlagSequence != 0 {
				q.Path += "/" // and its number
			}
			all = append(all, &q)
		case *zk.DeleteRequest:
			q := *op
			q.Path = c.pathBelow(q.Path)
			all = append(all, &q)
		case *zk.SetDataRequest:
			q := *op
			q.Path = c.pathBelow(q.Path)
			all = append(all, &q)
		case *zk.CheckVersionRequest:
			q := *op
			q.Path = c.pathBelow(q.Path)
			all = append(all, &q)
		}
	}
	return all
}

// pathBelow leaves a path that does not begin with a slash as it is, for the server to refuse:
// it would else be that of a neighbour.
func (c *Client) pathBelow(path string) string {
	switch {
	case path == "/":
		return c.chroot
	case !strings.HasPrefix(path, "/"):
		return path
	}
	return c.chroot + path
}

// above takes the path which all others are below from the answers to such operations.
func (c *Client) above(results []zk.MultiResponse) []zk.MultiResponse {
	for i := range results {
		results[i].String = strings.TrimPrefix(results[i].String, c.chroot)
	}
	return results
}
