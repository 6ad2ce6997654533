package store

import (
	"context"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// dialTier dials package tier's locks of one sort.
func dialTier(sort Sort) Dial {
	return func(ctx context.Context, o Options) (Locker, error) {
		client, err := zklock.Dial(ctx, strings.Join(o.Servers, ","), clientOptions(o)...)
		if err != nil {
			return nil, err
		}
		registry := tier.New(second.TierOf(client), o.policy()...)
		return tiered{registry, sort, o.Permits}, nil
	}
}

func clientOptions(o Options) (options []zklock.Option) {
	if o.SessionTimeout != 0 {
		options = append(options, zklock.WithSessionTimeout(o.SessionTimeout))
	}
	if o.Trace != nil {
		options = append(options, zklock.WithDialContext(o.Trace.Dial))
	}
	return options
}

// zklockLocker makes each goroutine a contender with a node of its own.
type zklockLocker struct{ *zklock.Client }

func dialZklock(ctx context.Context, o Options) (Locker, error) {
	client, err := zklock.Dial(ctx, strings.Join(o.Servers, ","), clientOptions(o)...)
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

// zkLocker is what tierlock is compared with: the client library's own lock, one per
// goroutine on one connection.
type zkLocker struct{ conn *zk.Conn }

func dialZK(ctx context.Context, o Options) (Locker, error) {
	conn, err := connect(ctx, o.Servers)
	if err != nil {
		return nil, err
	}
	return zkLocker{conn}, nil
}

func (l zkLocker) Close() error {
	l.conn.Close()
	return nil
}

func (l zkLocker) Contender(path string) (Contender, error) {
	return func(context.Context, int64) (Hold, error) {
		// A zk.Lock that failed once is stuck for ever, hence a new one for each turn.
		// It knows no ctx: after the end of the run the waiters take their turns and do
		// nothing with them.
		lock := zk.NewLock(l.conn, path, zk.WorldACL(zk.PermAll))
		if err := lock.Lock(); err != nil {
			return nil, err
		}
		return zkHold{lock}, nil
	}, nil
}

type zkHold struct{ lock *zk.Lock }

func (zkHold) Token() int64          { return 0 }
func (zkHold) Lost() <-chan struct{} { return nil }
func (zkHold) Err() error            { return nil }
func (h zkHold) Release() error      { return h.lock.Unlock() }
