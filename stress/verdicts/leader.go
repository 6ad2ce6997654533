package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/verdict"
)

// leader uses leaderelection of client-go. Its times have the proportions of the defaults, which are 15, 10 and 2 s. The leader has the
// lock. It believes in the lock as long as the context of OnStartedLeading lives and IsLeader returns true.
type leader struct{ releaseOnCancel bool }

func (l leader) dial(_ context.Context, o store.Options) (store.Locker, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: o.Servers, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	contend := func(ctx context.Context, path string) (store.Hold, error) {
		run, end := context.WithCancel(context.WithoutCancel(ctx))
		leads, stopped := make(chan context.Context, 1), make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          &record{client: client, key: "/record" + path},
			LeaseDuration: o.SessionTimeout, RenewDeadline: o.SessionTimeout * 10 / 15, RetryPeriod: o.SessionTimeout * 2 / 15,
			ReleaseOnCancel: l.releaseOnCancel,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { leads <- ctx },
				OnStoppedLeading: func() { close(stopped) },
			},
		})
		if err != nil {
			end()
			return nil, err
		}
		go elector.Run(run)
		select {
		case leading := <-leads:
			return verdict.Held{
				Gone: func() bool { return leading.Err() != nil || !elector.IsLeader() },
				Free: func() error { end(); <-stopped; return nil },
			}, nil
		case <-ctx.Done():
			end()
			<-stopped
			return nil, ctx.Err()
		}
	}
	return verdict.Peer{Contend: contend, End: func() { client.Close() }}, nil
}

// record is the record of who leads. It is kept in a key of etcd instead of Kubernetes' API server. A writer can write only if it has
// seen the newest version.
type record struct {
	client  *clientv3.Client
	key     string
	version int64
}

var kind = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (r *record) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	answer, err := r.client.Get(ctx, r.key)
	if err != nil {
		return nil, nil, err
	}
	if len(answer.Kvs) == 0 {
		return nil, nil, errors.NewNotFound(kind, r.key)
	}
	r.version = answer.Kvs[0].ModRevision
	var found resourcelock.LeaderElectionRecord
	return &found, answer.Kvs[0].Value, json.Unmarshal(answer.Kvs[0].Value, &found)
}

func (r *record) Create(ctx context.Context, next resourcelock.LeaderElectionRecord) error {
	r.version = 0
	return r.Update(ctx, next)
}

func (r *record) Update(ctx context.Context, next resourcelock.LeaderElectionRecord) error {
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	answer, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.key), "=", r.version)).
		Then(clientv3.OpPut(r.key, string(value))).Commit()
	switch {
	case err != nil:
		return err
	case !answer.Succeeded:
		return errors.NewConflict(kind, r.key, fmt.Errorf("not version %d", r.version))
	}
	r.version = answer.Header.Revision
	return nil
}

func (r *record) RecordEvent(string) {}
func (r *record) Identity() string   { return fmt.Sprint(os.Getpid()) }
func (r *record) Describe() string   { return r.key }
