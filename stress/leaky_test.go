package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// leakyLocker is tier's mutex and a node that goes only with the session.
type leakyLocker struct {
	store.Locker
	conn *zk.Conn
}

func dialLeaky(ctx context.Context, o store.Options) (store.Locker, error) {
	inner, err := store.ZooKeeper.Locks["mutex"].Dial(ctx, o)
	if err != nil {
		return nil, err
	}
	conn, _, err := zkconn.Open(ctx, o.Servers, 15*time.Second, nil)
	if err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	return leakyLocker{inner, conn}, nil
}

func (l leakyLocker) Contender(path string) (store.Contender, error) {
	acquire, err := l.Locker.Contender(path)
	return func(ctx context.Context, weight int64) (store.Hold, error) {
		h, err := acquire(ctx, weight)
		if err == nil {
			_, _ = l.conn.Create(path+"/leak", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		}
		return h, err
	}, err
}

func (l leakyLocker) Close() error {
	l.conn.Close()
	return l.Locker.Close()
}
