// Package redisserver runs private, real Redis servers as child processes, for tests and demos: a single one, a primary with its
// replicas, or a cluster.
//
// A server listens for clients on a free port of the loopback, keeps its data in a temporary directory, and runs until its Stop. On Linux
// the kernel also kills it when its parent dies without that. Unix only.
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
	// NoSync leaves the syncs to the kernel, and never waits for one; a kill -9 does not lose answered writes. Never set it where speed is
	// measured.
	NoSync bool
	// MinReplicas is the number of replicas that a primary has to have heard from within MaxLag in order to accept writes.
	MinReplicas int
	// MaxLag is in seconds, 10 if zero.
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
