package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
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
	return grant{n}.MultiIf(ctx, n.Err, ops...)
}

// MultiIf is [Node.Multi] for a user of the node who may lose the right to it before the
// node goes: it sends nothing if check, which should include [Node.Err], returns an
// error. A write counts from before that is asked. So whoever makes check fail first and
// then finds that nobody is writing may hand the node on: no write of the former user
// takes effect any more.
func (g grant) MultiIf(ctx context.Context, check func() error, ops ...any) (results []zk.MultiResponse, err error) {
	l := g.lock.client.link
	ops, err = g.lock.client.below(ops)
	if err == nil {
		err = cmp.Or(check(), context.Cause(ctx))
	}
	if err == nil {
		results, err = second.Do(ctx, l.Spawn, func() ([]zk.MultiResponse, error) {
			g.writing.Add(1) // count first, ask again after
			defer g.writing.Add(-1)
			return g.write(check, ops)
		}, func(cause error) error { return fmt.Errorf("%w: %w", ErrUnknown, cause) })
	}
	if err != nil {
		return nil, fmt.Errorf("zklock: multi under %s: %w", g.Path(), err)
	}
	return results, nil
}

// write sends operations behind a check of the node. That may have become a reader's since check was asked: its user
// then has to be one, and is asked again.
func (n *Node) write(check func() error, ops []any) ([]zk.MultiResponse, error) {
	guards, unpin := n.pin()
	defer unpin()
	if err := check(); err != nil {
		return nil, err
	}
	if guards == nil { // lost or given up
		return nil, cmp.Or(n.Err(), ErrLost)
	}
	all := append(guards.checks(), ops...)
	results, err := n.lock.client.link.Conn.Multi(all...)
	for i, r := range results[:min(len(results), len(guards))] {
		if errors.Is(r.Error, zk.ErrNoNode) {
			return nil, cmp.Or(check(), errDeleted(guards[i].path))
		}
	}
	switch {
	case err == nil && len(results) != len(all):
		return nil, fmt.Errorf("%w: the server answered %d results to %d operations", ErrUnknown, len(results), len(all))
	case len(results) == 0 && classify(err) == unknown:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return nil, err
	}
	results = results[len(guards):]
	for i := range results {
		results[i].String = strings.TrimPrefix(results[i].String, n.lock.client.chroot)
	}
	return results, nil
}

// below returns operations as they are for a server that knows nothing of the path which all
// others are below. It refuses what the library would: nothing of that is sent.
func (c *Client) below(ops []any) ([]any, error) {
	all := make([]any, len(ops))
	for i, op := range ops {
		switch op.(type) {
		case *zk.CreateRequest, *zk.DeleteRequest, *zk.SetDataRequest, *zk.CheckVersionRequest:
		default:
			return nil, fmt.Errorf("unknown operation type %T", op)
		}
		given := reflect.ValueOf(op)
		if given.IsNil() {
			return nil, fmt.Errorf("a %T that is nil: %w", op, zk.ErrUnhandledFieldType)
		}
		sent := reflect.New(given.Type().Elem())
		sent.Elem().Set(given.Elem())
		path := sent.Elem().FieldByName("Path")
		whole := path.String()
		below := c.absolute(whole)
		if q, ok := op.(*zk.CreateRequest); ok && whole == "/" && q.Flags&zk.FlagSequence != 0 && c.chroot != "" {
			below += "/" // and its number
		}
		path.SetString(below)
		all[i] = sent.Interface()
	}
	return all, nil
}

// absolute returns a path as the server knows it. One that does not begin with a slash stays as it is, for the server to refuse:
// it would else be that of a neighbour.
func (c *Client) absolute(path string) string {
	switch {
	case path == "/":
		return cmp.Or(c.chroot, "/")
	case !strings.HasPrefix(path, "/"):
		return path
	}
	return c.chroot + path
}
