package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/stress/internal/trace"
)

// ZooKeeper is the store of package zklock.
var ZooKeeper = &Store{
	Name:  "zookeeper",
	Title: "ZooKeeper",
	Locks: locksOf(openZooKeeper, []Sort{Mutex, ReadersWriter, Semaphore},
		map[string]Dial{"zklock": dialZklock, "zk": dialZK, "zk-local": local(dialZK)}),
	Baselines: []string{"zk", "zk-local"},
	Start:     startZooKeeper,
	URL:       func(servers []string) string { return "zk://" + strings.Join(servers, ",") },
	Observe:   observeZooKeeper,
	// The timeout is at least 13 ticks, because the lease requires 2·(syncLimit+1.5): see the documentation of zklock.
	HastyTimeout: func(random *rand.Rand) time.Duration { return time.Duration(13+random.IntN(3)) * hastyTick },
	Model:        trace.Rules{Nodes: true},
}

const (
	noZooKeeper = none("ZooKeeper")
	// hastyTick is short, so that sessions expire within a few seconds.
	hastyTick    = 200 * time.Millisecond
	reachTimeout = 5 * time.Second
)

// ParseZooKeeper splits a text of the form host:port[,...][/chroot].
func ParseZooKeeper(s string) (servers []string, chroot string, err error) {
	hosts, root, found := strings.Cut(s, "/")
	if found {
		chroot = "/" + root
	}
	servers = strings.Split(hosts, ",")
	if slices.Contains(servers, "") {
		return nil, "", errors.New("an empty host")
	}
	return servers, chroot, zknode.ValidatePath(chroot + "/lock")
}

// startZooKeeper starts servers. They have the usual tick, unless shape is hasty.
func startZooKeeper(ctx context.Context, shape Shape) (*Cluster, error) {
	cfg := zkserver.Config{TickTime: 2 * time.Second}
	if shape.Hasty {
		cfg = zkserver.Config{TickTime: hastyTick, NoSync: true}
	}
	ensemble, err := zkserver.StartEnsemble(ctx, shape.Members, cfg)
	if err != nil {
		return nil, errors.Join(noZooKeeper, err)
	}
	return &Cluster{Ensemble: ensemble}, nil
}

// ZooKeeperAt returns the version of running servers. It returns "" if the first server does not report its version.
func ZooKeeperAt(servers []string) string {
	release, _ := zkserver.Version(zk.FormatServers(slices.Clone(servers))[0])
	return release
}

// connect opens a session. If ctx ends before, it fails.
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
