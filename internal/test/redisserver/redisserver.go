// Package redisserver runs private, real Redis servers as child processes, for tests and demos: a single one, a primary with its
// replicas, or a cluster.
//
// A server listens for clients on a free port of the loopback. It keeps its data in a temporary directory, and runs until its Stop. If its
// parent dies without calling Stop, Linux kills the server. The package works only on Unix.
//
// An ensemble has no automatic fail-over: the caller decides which member replaces a primary, and when. See [Ensemble.Promote].
package redisserver

import (
	"context"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a server that keeps an append-only file,
// which it syncs each second.
type Config struct {
	// NoSync leaves it to the kernel to write data to the disk, and never waits for that. A kill -9 does not lose answered writes. Never set
	// NoSync where speed is measured.
	NoSync bool
	// MinReplicas is the number of replicas that a primary needs to accept writes. A replica counts if the primary has heard from it within
	// MaxLag.
	MinReplicas int
	// MaxLag is in seconds; zero means 10.
	MaxLag int
	// Port is the client port of a single server; zero picks a free one.
	Port int

	cluster bool
}

// Server is one Redis. Only Addr and Pid are safe for concurrent use. Its Mode is "leader" for a primary and "follower" for a replica.
type Server = child.Server

// Start starts a single server, and returns once it serves requests. The end of ctx ends the attempt, not the server. The error is
// [ErrNotFound] if this machine has no Redis; otherwise it ends with the server's last output.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	e, err := StartEnsemble(ctx, 1, cfg)
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}
