package etcdlock_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/tier"
)

func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"etcd1:2379", "etcd2:2379", "etcd3:2379"},
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	locks, err := etcdlock.New(ctx, client, tier.WithLabel("reports"), tier.WithLinger(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	report := locks.Mutex("/locks/report")
	err = report.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
		_, err := etcdlock.Txn(ctx, tier.HoldFrom(ctx, report), clientv3.OpPut("/reports/last", "today"))
		return err
	})
	if err != nil {
		log.Print(err)
	}
}
