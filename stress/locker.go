package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// locker is one worker process's connection to the lock under test.
type locker interface {
	// contender returns what one goroutine uses to acquire path, again and again.
	contender(path string) (contender, error)
	Close() error
}

type contender func(ctx context.Context) (held, error)

// held is one acquisition.
type held interface {
	Token() int64          // zero if this kind of lock has none
	Lost() <-chan struct{} // nil if this kind of lock never tells
	Err() error
	Release() error
}

// dialers has the kinds of lock by the name that -lock gives them.
var dialers = map[string]func(ctx context.Context, cfg Config) (locker, error){
	"tier":   dialTier,
	"zklock": dialZklock,
	"zk":     dialZK,
}

type tierLocker struct{ *tier.Registry }

func dialTier(ctx context.Context, cfg Config) (locker, error) {
	client, err := zklock.Dial(ctx, cfg.Servers, clientOptions(cfg)...)
	if err != nil {
		return nil, err
	}
	var opts []tier.Option
	if cfg.HandOff != nil {
		opts = append(opts, tier.WithHandOff(*cfg.HandOff))
	}
	if cfg.Linger != nil {
		opts = append(opts, tier.WithLinger(*cfg.Linger))
	}
	registry, err := tier.New(client, opts...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return tierLocker{registry}, nil
}

func clientOptions(cfg Config) []zklock.Option {
	if cfg.SessionTimeout == 0 {
		return nil
	}
	return []zklock.Option{zklock.WithSessionTimeout(cfg.SessionTimeout)}
}

func (l tierLocker) contender(path string) (contender, error) {
	return contend(l.Mutex(path).Acquire), nil
}

// zklockLocker makes each goroutine a contender with a node of its own.
type zklockLocker struct{ *zklock.Client }

func dialZklock(ctx context.Context, cfg Config) (locker, error) {
	client, err := zklock.Dial(ctx, cfg.Servers, clientOptions(cfg)...)
	if err != nil {
		return nil, err
	}
	return zklockLocker{client}, nil
}

func (l zklockLocker) contender(path string) (contender, error) {
	lock, err := l.Lock(path)
	if err != nil {
		return nil, err
	}
	return contend(lock.Acquire), nil
}

func contend[H held](acquire func(context.Context) (H, error)) contender {
	return func(ctx context.Context) (held, error) {
		h, err := acquire(ctx)
		if err != nil {
			return nil, err // not h: a nil *Hold is not a nil held
		}
		return h, nil
	}
}

// zkLocker is what tierlock is compared with: the client library's own lock, one per
// goroutine on one connection.
type zkLocker struct{ conn *zk.Conn }

func dialZK(ctx context.Context, cfg Config) (locker, error) {
	conn, err := connect(ctx, cfg.Servers)
	if err != nil {
		return nil, err
	}
	return zkLocker{conn}, nil
}

func (l zkLocker) Close() error {
	l.conn.Close()
	return nil
}

func (l zkLocker) contender(path string) (contender, error) {
	return func(context.Context) (held, error) {
		// A zk.Lock that failed once is stuck for ever, hence a new one for each turn.
		// It knows no ctx: after the end of the run the waiters take their turns and do
		// nothing with them.
		lock := zk.NewLock(l.conn, path, zk.WorldACL(zk.PermAll))
		if err := lock.Lock(); err != nil {
			return nil, err
		}
		return zkHeld{lock}, nil
	}, nil
}

type zkHeld struct{ lock *zk.Lock }

func (zkHeld) Token() int64          { return 0 }
func (zkHeld) Lost() <-chan struct{} { return nil }
func (zkHeld) Err() error            { return nil }
func (h zkHeld) Release() error      { return h.lock.Unlock() }

// connect opens a session, or fails when ctx ends.
func connect(ctx context.Context, servers []string) (*zk.Conn, error) {
	conn, events, err := zk.Connect(servers, 15*time.Second, zk.WithLogInfo(false), zk.WithLogger(silence{}))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn, nil
			}
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("no session with ZooKeeper at %v: %w", servers, context.Cause(ctx))
		}
	}
}

type silence struct{}

func (silence) Printf(string, ...any) {}
