// Package tierlock is a distributed reentrant lock for processes with many goroutines that
// want the same thing: the front door to it on ZooKeeper.
//
//	locks, err := tierlock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181/app")
//	…
//	defer locks.Close()
//	hold, err := locks.Mutex("/locks/report").Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Release()
//	ctx = hold.Context(ctx) // ends if the lock is lost
//
// What comes back is of package tier, which has the gate of the process and the contract of the
// lock, whatever store is behind it. Package zklock is the second tier on ZooKeeper, and says
// what is promised there, and what it assumes. Package dropin has the methods of go-zookeeper's
// zk.Lock. Another second tier is etcd, in the module etcdlock.
package tierlock

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// An Option is a [zklock.Option], which says how to connect, or a [tier.Option], which says how
// this process shares its locks with others.
type Option interface{ ForDial() }

// Dial connects to the ensemble of connect, "host:port,host:port/path": all lock paths are
// below that path, if there is one. It waits for a session until ctx is done; the error then
// tells why there was none. A bad connect string or option fails at once. After an error
// nothing is left; see [zklock.Dial].
//
// The registry owns the connection: closing it closes that.
func Dial(ctx context.Context, connect string, opts ...Option) (*tier.Registry, error) {
	var dial []zklock.Option
	var share []tier.Option
	for _, opt := range opts {
		switch opt := opt.(type) {
		case zklock.Option:
			dial = append(dial, opt)
		case tier.Option:
			share = append(share, opt)
		default:
			return nil, fmt.Errorf("tierlock: dial %s: option of type %T; want a zklock.Option or a tier.Option", connect, opt)
		}
	}
	if err := tier.Check(share...); err != nil { // before there is anything to wait for
		return nil, err
	}
	client, err := zklock.Dial(ctx, connect, dial...)
	if err != nil {
		return nil, err
	}
	return tier.New(client.Tier(), share...)
}

// Multi runs ZooKeeper operations, as in [zk.Conn.Multi], in one transaction that takes effect
// only while the lock of hold is ours: an exact fence for data that live in the same ensemble.
// Paths are below that of the connect string, like those of locks.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or is that of
// one of the operations, or ctx had ended before, or the lock is not one on ZooKeeper. When the
// answer is lost, or ctx ends first, the outcome is unknown; the operations may then still take
// effect, but never after the lock went to somebody else. Until that is known the lock is not
// handed on within the process either.
func Multi(ctx context.Context, hold *tier.Hold, ops ...any) ([]zk.MultiResponse, error) {
	node, ok := zklock.NodeOf(hold.Grant())
	if !ok {
		return nil, fmt.Errorf("tierlock: multi under %s: that lock is not on ZooKeeper", hold.Path())
	}
	return node.MultiIf(ctx, hold.Err, ops...)
}
