package zklock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// connect stands for zklock.Dial(ctx, "zk1:2181,zk2:2181,zk3:2181"). It starts a ZooKeeper in memory, for one example.
func connect(ctx context.Context) (locks *tier.Registry, disconnect func()) {
	srv := zktest.NewServer(zktest.Config{})
	locks, err := zklock.Dial(ctx, "127.0.0.1:2181/app", zklock.WithDialContext(srv.DialContext), tier.WithStrictOrder())
	if err != nil {
		panic(err)
	}
	return locks, func() {
		locks.Close()
		srv.Close()
	}
}

func ExampleDial() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	err := locks.Mutex("/locks/report").Do(ctx, func(ctx context.Context) error {
		fmt.Println("alone in all processes")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone in all processes
	// <nil>
}

// Data in the same ZooKeeper needs no token: the server checks the lock in the transaction that writes.
func ExampleMulti() {
	ctx := context.Background()
	locks, disconnect := connect(ctx)
	defer disconnect()

	hold, err := locks.Mutex("/locks/leader").Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	leader := &zk.CreateRequest{Path: "/leader", Data: []byte("me"), Acl: zk.WorldACL(zk.PermAll)}
	_, err = zklock.Multi(ctx, hold, leader)
	fmt.Println("while held:", err)
	hold.Release()
	_, err = zklock.Multi(ctx, hold, leader)
	fmt.Println("after release:", errors.Is(err, tier.ErrReleased))
	// Output:
	// while held: <nil>
	// after release: true
}
