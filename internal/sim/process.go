package sim

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// sessionTimeout is what every process asks for, and gets.
const sessionTimeout = 6 * time.Second

// A process is one life of a program that uses locks: a connection of its own and a registry on top.
type process struct {
	client *zklock.Client
	locks  *tier.Registry
}

// A way is how a process gets to the servers.
type way struct {
	servers []string
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
}

// start keeps trying to connect until ctx ends.
func (p *process) start(ctx context.Context, by way, connect []zklock.Option, share []tier.Option) error {
	opts := append([]zklock.Option{zklock.WithDialContext(by.dial), zklock.WithSessionTimeout(sessionTimeout)}, connect...)
	client, err := zklock.Dial(ctx, strings.Join(by.servers, ","), opts...)
	if err != nil {
		return err
	}
	locks, err := tier.New(second.TierOf(client), share...)
	if err != nil {
		panic(err) // the options are ours
	}
	p.client, p.locks = client, locks
	return nil
}

// reaping returns the number of nodes that are still to be deleted in the background.
func (p *process) reaping() int {
	return second.TierOf(p.client).(interface{ Reaping() int }).Reaping()
}
