// Package agentlock is the lock for Go programs on a host with an agent. The command "tierlock agent" serves the locks of a store to all
// processes of its host. The agent has one queue entry per lock in the store, however many processes of the host wait.
//
//	locks, err := agentlock.Dial(ctx, "unix:/run/tierlock.sock")
//
// Package tier documents the lock, which is the same on every store. docs/agent.md has the protocol and the clients for other languages.
//
// # Choosing between the agent and a store
//
// A program that connects to the store itself depends on no other process of the host, and its guarded writes work. The agent is for hosts
// on which many short-lived or small processes want the same locks: it needs one session in the store, and passes a lock from process to
// process of the host without a request to the store. If a process of the host is killed, the next one gets its lock at once.
//
// # What differs
//
//   - The agent sets the lease TTL and the margin. [tier.WithLeaseTTL] and [tier.WithLeaseMargin] are errors.
//   - After a release, the next process of the host has the same token. It has a higher token after [tier.Hold.ReleaseUnsettled], and after
//     a hold that ended in any other way.
//   - Hold.Save is the only guarded write. Guarded writes of the stores refuse a hold of the agent, because the queue entry in the store
//     stays when another process of the host gets the lock.
//   - The permits of one Semaphore.Acquire return to the agent together, when the process needs none of them.
//   - If the agent ends, all holds are lost at once. [tier.Registry.Err] reports it, and the registry connects to the next agent.
//
// Caution: do not use a registry in a child process after a fork without exec. The agent refuses holds of the parent to the child.
package agentlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/tierlock/tierlock/internal/agentstore"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// Dial returns a registry of the locks that the agent at address serves. The address names a Unix socket, such as
// "unix:/run/tierlock.sock". Dial blocks until the agent has answered or ctx ends: give ctx a deadline. With [tier.WithLazyStart] Dial
// returns at once.
//
// If the address or an option is wrong, Dial fails at once. If the agent cannot be reached, the error wraps the cause of ctx and says why.
// After an error nothing is left at the agent.
func Dial(ctx context.Context, address string, opts ...tier.RegistryOption) (*tier.Registry, error) {
	t, share, err := dial(ctx, address, opts)
	if err != nil {
		return nil, fmt.Errorf("agentlock: %w", err)
	}
	return tier.New(t, share...), nil
}

// A none would be an option that only this store has. There are no such options.
type none struct{ tier.RegistryOption }

var errTTL = errors.New("the agent sets the lease TTL and the margin; remove tier.WithLeaseTTL and tier.WithLeaseMargin")

func dial(ctx context.Context, address string, opts []tier.RegistryOption) (*queue.Tier, []tier.Option, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	if path = strings.TrimPrefix(path, "//"); !ok || path == "" {
		return nil, nil, fmt.Errorf("address %q: want unix: and the path of a socket, such as unix:/run/tierlock.sock", address)
	}
	o := second.Defaults
	_, share, err := second.Split[none, tier.Option](&o, opts)
	if err == nil {
		err = o.CheckRest()
	}
	if err == nil && (o.TTL != second.Defaults.TTL || o.Margin != 0) {
		err = errTTL
	}
	if err != nil {
		return nil, nil, err
	}
	t := agentstore.Open(path, func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) }, o)
	if !o.Lazy {
		err = t.Ready(ctx)
	}
	return t, share, err
}
