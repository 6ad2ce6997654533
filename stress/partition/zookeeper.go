package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

const (
	tick      = sessionTimeout / 8 // in the same proportion as 2 s to 15 s
	syncLimit = 5                  // in ticks; zkserver sets this value, too
)

var zooKeeper = &site{
	store: store.ZooKeeper,
	faults: []fault{
		{name: "follower", on: follower, strike: cut},
		{name: "leader", on: leader, strike: cut},
		{name: "frozen", on: leader, strike: freeze},
		{name: "flap", on: follower, whileWriting: true, strike: flap},
	},
	namespaces: true,
	start:      startZooKeeper,
	write: func(ctx context.Context, hold *tier.Hold, path string) {
		_, _ = zklock.Multi(ctx, hold, &zk.SetDataRequest{Path: path, Version: -1})
	},
}

func startZooKeeper(ctx context.Context, l *lab) error {
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	network, err := newNetwork(members)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	var servers []zkserver.Config
	for id := 1; id <= members; id++ {
		servers = append(servers, zkserver.Config{TickTime: tick, NoSync: true, Host: host(id), Namespace: namespace(id)})
	}
	l.network = network
	l.isolate = func(victim int) error { return network.set(around(victim)...) }
	l.heal = func() error { return network.set() }
	l.ensemble, err = zkserver.StartMembers(ctx, servers...)
	return err
}
