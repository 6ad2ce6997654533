// Package tierlock is a distributed reentrant lock, on ZooKeeper, for processes with many
// goroutines that compete for the same thing.
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
// Package tier documents the lock, which is the same on every store. Package zklock documents
// what ZooKeeper adds: the lease, what it assumes, and who else can share a path. Packages
// etcdlock, pglock and redislock, modules of their own, have it on etcd, PostgreSQL and Redis.
// Package dropin has the methods of go-zookeeper's zk.Lock.
package tierlock

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// An Option is a [zklock.Option], which says how to connect, or a [tier.Option], which says how
// this process shares its locks with others.
type Option interface{ second.RegistryOption }

// Dial connects to the ensemble of connect, "host:port,host:port/path"; if there is a path, all
// lock paths are below it. Options of both kinds go together:
//
//	tierlock.Dial(ctx, "zk1:2181,zk2:2181", tier.WithLinger(time.Second), zklock.WithLogger(slog.Default()))
//
// Dial waits for a session until ctx is done, so give it a deadline; the error says why there was
// no session. A bad connect string or option fails at once, and within 3 s if none of the names
// can be looked up. After an error nothing is left; see [zklock.Dial]. Once Dial has returned, the
// end of ctx has no effect.
//
// The registry owns the connection and closes it.
func Dial(ctx context.Context, connect string, opts ...Option) (*tier.Registry, error) {
	dial, share, err := second.Split[zklock.Option, tier.Option](opts)
	if err != nil {
		return nil, fmt.Errorf("tierlock: dial %s: %w", connect, err)
	}
	client, err := zklock.Dial(ctx, connect, dial...)
	if err != nil {
		return nil, err
	}
	return tier.New(second.TierOf(client), share...), nil
}

// Multi runs ZooKeeper operations, those that [zk.Conn.Multi] takes, in one transaction that
// takes effect only while all locks of guard, a [*tier.Hold] or a [*tier.Bundle], are ours: an exact fence for data in the
// same ensemble. Paths are below that of the connect string, like those of locks.
//
// To read, the program needs a connection of its own, on which paths are absolute. It may see old
// data even under the lock, so give the versions that were read to the operations.
//
// Nothing was changed when the error wraps [tier.ErrLost] or [tier.ErrReleased], or is that of
// one of the operations, or ctx had ended before, or the locks are not all of one registry on ZooKeeper. When the
// answer is lost, or ctx ends first, the error wraps [tier.ErrUnknown], and the cause: the operations
// may still take effect, but never after somebody else got one of the locks. Until the outcome is known no lock
// is handed on within the process either.
func Multi(ctx context.Context, guard tier.Guard, ops ...any) ([]zk.MultiResponse, error) {
	locks, err := second.GuardOf(guard)
	if err != nil {
		return nil, fmt.Errorf("tierlock: multi: %w", err)
	}
	g, ok := locks.Grants[0].(interface {
		MultiUnder(ctx context.Context, locks second.Guard, ops ...any) ([]zk.MultiResponse, error)
	})
	if !ok {
		return nil, fmt.Errorf("tierlock: multi under %s: that lock is not on ZooKeeper", locks.Path)
	}
	return g.MultiUnder(ctx, locks, ops...)
}
