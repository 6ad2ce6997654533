package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/zkserver"
)

var errNoServer = errors.New("no ZooKeeper to be had")

const (
	reachTimeout = 5 * time.Second
	// leakPatience is for nodes whose deletion is under way when the last goroutine has
	// released.
	leakPatience = 3 * time.Second
)

// chaosTick lets sessions expire within a few seconds.
const chaosTick = 200 * time.Millisecond

// startServers starts the private servers, which tick as in production, except that
// under chaos they are in a hurry.
func startServers(ctx context.Context, cfg Config) (*zkserver.Ensemble, error) {
	shape := zkserver.Config{TickTime: 2 * time.Second}
	if cfg.Chaos {
		// What kill -9 leaves to the kernel is not lost, so nothing is by not syncing.
		shape = zkserver.Config{TickTime: chaosTick, NoSync: true}
	}
	if cfg.Ensemble > 1 {
		return zkserver.StartEnsemble(ctx, cfg.Ensemble, shape)
	}
	server, err := zkserver.Start(ctx, shape)
	if err != nil {
		return nil, err
	}
	return &zkserver.Ensemble{Members: []*zkserver.Server{server}}, nil
}

// observer is the coordinator's own view of ZooKeeper.
type observer struct {
	conn    *zk.Conn
	servers []string
	base    string // parent of the lock paths, of this run alone
	paths   []string
	created []string // what had to be created above base, the deepest first
}

func observe(ctx context.Context, cfg Config) (*observer, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := connect(ctx, cfg.Servers)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (without -zk, a private server is started)", errNoServer, err)
	}
	o := &observer{conn: conn, servers: cfg.Servers}
	o.base = fmt.Sprintf("%s/tierlock-stress-%x-%s", cfg.Chroot, conn.SessionID(), cfg.Lock)
	for i := range cfg.Paths {
		o.paths = append(o.paths, fmt.Sprintf("%s/%d", o.base, i))
	}
	return o, nil
}

// renew opens another session. After an outage the client library can take minutes to
// find out that the server never got its handshake.
func (o *observer) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := connect(ctx, o.servers)
	if err != nil {
		return err
	}
	o.conn.Close()
	o.conn = conn
	return nil
}

// leaked counts the children of the lock paths, again and again while there are any and
// there is patience left.
func (o *observer) leaked(ctx context.Context, patience time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := o.children()
		if err == nil && n == 0 {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return n, err
		case <-tick.C:
		}
	}
}

func (o *observer) children() (n int64, err error) {
	for _, p := range o.paths {
		if _, err := o.conn.Sync(p); err != nil {
			return n, fmt.Errorf("look for leaked nodes: %w", err)
		}
		children, _, err := o.conn.Children(p)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return n, fmt.Errorf("look for leaked nodes: %w", err)
		}
		n += int64(len(children))
	}
	return n, nil
}

// Close removes the empty paths of this run, in case nobody else does, and ends the
// session.
func (o *observer) Close() {
	for _, p := range slices.Concat(o.paths, []string{o.base}, o.created) {
		_ = o.conn.Delete(p, -1) // a container may be gone already, a leaked node may be in the way
	}
	o.conn.Close()
}
