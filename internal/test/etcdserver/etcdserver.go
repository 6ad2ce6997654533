// Package etcdserver runs private, real etcd servers as child processes, for tests and
// demos.
//
// A server listens for clients on a free port of the loopback, keeps its data in a temporary directory, and runs until its Stop. On Linux
// the kernel also kills it when its parent dies without that. Unix only.
//
// Members of an ensemble reach one another through this process, which can cut one of them off: see [Ensemble.Isolate].
package etcdserver

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a fast server for tests.
type Config struct {
	// TickTime is the interval of the leader's heartbeat, 50 ms if zero. Members that receive nothing for ten ticks elect another leader.
	// Leases last at least fifteen ticks, rounded up to whole seconds. Production uses 100 ms.
	TickTime time.Duration
	// NoSync acknowledges writes before they are on the disk. Never set it where speed
	// is measured.
	NoSync bool
	// Port is the client port of a single server; zero picks a free one.
	Port int
}

// Server is one etcd. Only Addr and Pid are safe for concurrent use. A single server is its own leader.
type Server = child.Server

// Start starts a single server, and returns once it serves requests. The end of ctx ends the attempt, not the server. The error is
// [ErrNotFound] if this machine has no etcd; otherwise it ends with the server's last output.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	e, err := StartEnsemble(ctx, 1, cfg)
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}
