package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/stress/internal/trace"
)

// Etcd is the store of package etcdlock.
var Etcd = &Store{
	Name:  "etcd",
	Title: "etcd",
	Locks: locksOf(openEtcd, []Sort{Mutex, ReadersWriter, Semaphore},
		map[string]Dial{"etcd": dialEtcdMutexes, "etcd-local": local(dialEtcdMutexes)}),
	Baselines: []string{"etcd", "etcd-local"},
	Start:     startEtcd,
	URL:       func(servers []string) string { return "etcd://" + strings.Join(servers, ",") },
	Observe:   observeEtcd,
	// The timeout is a whole number of seconds, and longer than the minimum that the server has with these ticks.
	HastyTimeout: func(random *rand.Rand) time.Duration { return time.Duration(2+random.IntN(3)) * time.Second },
	Model:        trace.Rules{},
}

const noEtcd = none("etcd")

// startEtcd starts servers. They have the usual tick, unless shape is hasty.
func startEtcd(ctx context.Context, shape Shape) (*Cluster, error) {
	cfg := etcdserver.Config{TickTime: 100 * time.Millisecond}
	if shape.Hasty {
		cfg = etcdserver.Config{TickTime: 50 * time.Millisecond, NoSync: true}
	}
	ensemble, err := etcdserver.StartEnsemble(ctx, shape.Members, cfg)
	if err != nil {
		return nil, errors.Join(noEtcd, err)
	}
	return &Cluster{Ensemble: ensemble, Isolate: ensemble.Isolate, Heal: ensemble.Heal, Revokes: true}, nil
}

// connectEtcd returns a client without waiting for its connection.
func connectEtcd(servers []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: servers, Logger: zap.NewNop(),
		// etcdlock asks its users for these two settings.
		DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	})
}
