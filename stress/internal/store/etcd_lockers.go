package store

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/tier"
)

func openEtcd(ctx context.Context, o Options) (*tier.Registry, func() error, error) {
	client, err := connectEtcd(o.Servers)
	if err != nil {
		return nil, nil, err
	}
	locks, err := etcdlock.New(ctx, client, o.registry()...)
	return opened(locks, err, client.Close)
}

// mutexTTL is the default TTL of etcdlock, in seconds.
const mutexTTL = 15

// etcdMutexes are the baseline on etcd: the client library's own mutex, one for each goroutine. Each goroutine takes an idle session
// that no other goroutine uses. A mutex has the name of its session as its key, so two goroutines with the same session would both get
// the lock.
type etcdMutexes struct {
	client   *clientv3.Client
	sessions chan *concurrency.Session
}

func dialEtcdMutexes(ctx context.Context, o Options) (Locker, error) {
	client, err := connectEtcd(o.Servers)
	if err != nil {
		return nil, err
	}
	l := etcdMutexes{client, make(chan *concurrency.Session, o.Goroutines)}
	for range o.Goroutines {
		s, err := openSession(ctx, client)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		l.sessions <- s
	}
	return l, nil
}

// openSession opens a session. ctx limits the requests for that, and not the life of the session.
func openSession(ctx context.Context, client *clientv3.Client) (*concurrency.Session, error) {
	lease, err := client.Grant(ctx, mutexTTL)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithTTL(mutexTTL))
}

// Close ends all idle sessions. Only goroutines that are stuck still have one.
func (l etcdMutexes) Close() error {
	for {
		select {
		case s := <-l.sessions:
			s.Orphan()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := l.client.Revoke(ctx, s.Lease())
			cancel()
			if err != nil {
				return errors.Join(err, l.client.Close())
			}
		default:
			return l.client.Close()
		}
	}
}

func (l etcdMutexes) Contender(path string) (Contender, error) {
	return func(ctx context.Context, _ int64) (Hold, error) {
		s := <-l.sessions // there is a session for each goroutine
		mutex := concurrency.NewMutex(s, path)
		if err := mutex.Lock(ctx); err != nil {
			// The request may have created the key although it was cancelled.
			_, err2 := l.client.Delete(l.client.Ctx(), mutex.Key())
			l.sessions <- s
			return nil, errors.Join(err, err2)
		}
		return plain(func() error {
			defer func() { l.sessions <- s }()
			return mutex.Unlock(l.client.Ctx())
		}), nil
	}, nil
}
