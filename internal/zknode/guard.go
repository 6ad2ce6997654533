package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
)

// Multi runs ZooKeeper operations (as in [zk.Conn.Multi]) in one transaction that takes effect only while this node exists. This is an
// exact fence for data in the same ensemble. Multi returns the results of ops.
// Nothing was changed if the error wraps [ErrLost] or [ErrReleased], if it is the error of one of the operations, or if ctx had ended
// before the call. If the answer is lost, or ctx ends first, the error wraps [ErrUnknown] and the cause. The operations may then still take
// effect, but never after another process was granted the lock.
func (n *Node) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return grant{n}.MultiIf(ctx, n.Err, ops...)
}

// MultiIf is like [Node.Multi], for a hold that may end before the node is deleted. The function check should include [Node.Err]. If check
// returns an error, MultiIf sends nothing. A write is counted before check is called. Code that hands the node off first makes check fail,
// and then waits until no write is counted. After that, no write of the former hold can take effect.
func (g grant) MultiIf(ctx context.Context, check func() error, ops ...any) (results []zk.MultiResponse, err error) {
	return g.MultiUnder(ctx, second.Guard{Path: g.Path(), Grants: []second.Grant{g}, Check: check}, ops...)
}

// MultiUnder is like [grant.MultiIf], but takes effect only while all nodes of locks exist. This node is the first of them. Until the write
// can no longer take effect, none of the nodes counts as idle.
func (g grant) MultiUnder(ctx context.Context, locks second.Guard, ops ...any) (results []zk.MultiResponse, err error) {
	l := g.lock.client.link
	nodes, err := g.together(locks.Grants)
	if err == nil {
		ops, err = g.lock.client.below(ops)
	}
	if err == nil {
		err = cmp.Or(locks.Check(), context.Cause(ctx))
	}
	if err == nil {
		results, err = second.Do(ctx, l.Spawn, func() ([]zk.MultiResponse, error) {
			for _, n := range nodes {
				n.writing.Add(1) // counted before check is called again
				defer n.writing.Add(-1)
			}
			return g.lock.client.write(nodes, locks.Check, ops)
		}, func(cause error) error { return fmt.Errorf("%w: %w", second.ErrUnknown, cause) })
	}
	if err != nil {
		return nil, fmt.Errorf("zklock: multi guarded by %s: %w", locks.Path, err)
	}
	return results, nil
}

// together returns the nodes of the given grants. If one transaction of this client cannot check all of them, it returns an error.
func (g grant) together(all []second.Grant) (nodes []*Node, err error) {
	for _, one := range all {
		other, ok := one.(grant)
		switch {
		case !ok:
			return nil, errors.New("not all of these locks are on ZooKeeper")
		case other.lock.client != g.lock.client:
			return nil, errors.New("the locks belong to several registries; one transaction cannot check them all")
		}
		nodes = append(nodes, other.Node)
	}
	return nodes, nil
}

// write sends the operations in a transaction that also checks the nodes. A node may have been downgraded since check was called. Then only
// a reader may still write, so write calls check again.
func (c *Client) write(nodes []*Node, check func() error, ops []any) ([]zk.MultiResponse, error) {
	var all []any
	var guards znodes
	var of []*Node // for each znode in guards, the node to which it belongs
	for _, n := range nodes {
		own, unpin := n.pin()
		defer unpin()
		if own == nil { // the node was lost or given up
			return nil, cmp.Or(check(), n.Err(), second.ErrLost)
		}
		all, guards, of = append(all, own.checks()...), append(guards, own...), append(of, slices.Repeat([]*Node{n}, len(own))...)
	}
	if err := check(); err != nil {
		return nil, err
	}
	all = append(all, ops...)
	results, err := c.link.Conn.Multi(all...)
	err = wire.Named(err)
	for i := range results {
		results[i].Error = wire.Named(results[i].Error)
	}
	for i, r := range results[:min(len(results), len(guards))] {
		if errors.Is(r.Error, zk.ErrNoNode) {
			of[i].loseTo(guards[i]) // does not wait for the event, which may come later or never, because the watch may not be set yet
			return nil, cmp.Or(check(), errDeleted(guards[i].path))
		}
	}
	switch {
	case err == nil && len(results) != len(all):
		return nil, fmt.Errorf("%w: the server answered %d results to %d operations", second.ErrUnknown, len(results), len(all))
	case len(results) == 0 && classify(err) == unknown:
		return nil, fmt.Errorf("%w: %w", second.ErrUnknown, err)
	case err != nil:
		return nil, err
	}
	results = results[len(guards):]
	for i := range results {
		results[i].String = strings.TrimPrefix(results[i].String, c.chroot)
	}
	return results, nil
}

// below returns operations whose paths begin with the chroot. If the library would refuse an operation, below returns an error before
// anything is sent.
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
			below += "/" // the sequence number of the node follows the slash
		}
		path.SetString(below)
		all[i] = sent.Interface()
	}
	return all, nil
}

// absolute returns a path with the chroot, as the server knows it. A path that does not begin with a slash is returned unchanged, and the
// server refuses it. With the chroot before it, it would be the path of another node.
func (c *Client) absolute(path string) string {
	switch {
	case path == "/":
		return cmp.Or(c.chroot, "/")
	case !strings.HasPrefix(path, "/"):
		return path
	}
	return c.chroot + path
}
