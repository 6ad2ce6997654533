// Package etcdserver runs private, real etcd servers as child processes, for tests and
// demos.
//
// A server listens for clients on a free port of the loopback. It keeps its data in a temporary directory, and runs until its Stop. If its
// parent dies without calling Stop, Linux kills the server. The package works only on Unix.
//
// The members of an ensemble reach one another through this process. The process can cut off one of them: see [Ensemble.Isolate].
package etcdserver

import (
	"context"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a fast server for tests.
type Config struct {
	// TickTime is the interval of the leader's heartbeat; zero means 50 ms. Members that receive nothing for ten ticks elect another leader.
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
