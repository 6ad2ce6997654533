package store

import (
	"context"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
)

func openZooKeeper(ctx context.Context, o Options) (*tier.Registry, func() error, error) {
	client, err := dialClient(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return tier.New(zknode.Tier(client), o.policy()...), func() error { return nil }, nil // the registry closes the client
}

func dialClient(ctx context.Context, o Options) (*zknode.Client, error) {
	var options []zknode.Option
	if o.SessionTimeout != 0 {
		options = append(options, zknode.WithSessionTimeout(o.SessionTimeout))
	}
	if o.Trace != nil {
		options = append(options, zknode.WithDialContext(o.Trace.Dial))
	}
	return zknode.Dial(ctx, strings.Join(o.Servers, ","), options...)
}

// zklockLocker gives each goroutine its own contender, with its own node.
type zklockLocker struct{ *zknode.Client }

func dialZklock(ctx context.Context, o Options) (Locker, error) {
	client, err := dialClient(ctx, o)
	if err != nil {
		return nil, err
	}
	return zklockLocker{client}, nil
}

func (l zklockLocker) Contender(path string) (Contender, error) {
	lock, err := l.Lock(path)
	if err != nil {
		return nil, err
	}
	return contend(lock.Acquire), nil
}

// dialZK dials the baseline on ZooKeeper: the client library's own lock. All goroutines use one connection, and each has its own lock.
func dialZK(ctx context.Context, o Options) (Locker, error) {
	conn, err := connect(ctx, o.Servers)
	if err != nil {
		return nil, err
	}
	contender := func(path string) Contender {
		return func(context.Context, int64) (Hold, error) {
			// A zk.Lock that has failed once stays unusable, so each acquisition makes a new one. A zk.Lock has no context. Therefore,
			// after the end of the run, waiters still acquire the lock, and release it at once.
			lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			if err := lock.Lock(); err != nil {
				return nil, err
			}
			return plain(lock.Unlock), nil
		}
	}
	return peer{contender, func() error { conn.Close(); return nil }}, nil
}
