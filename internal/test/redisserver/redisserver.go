// Package redisserver runs private, real Redis servers as child processes, for tests and
// demos: one that is alone, a primary with its replicas, or a cluster.
//
// A server takes clients on the loopback, on a port nobody else uses, keeps its data in a
// temporary directory, and ends with its Stop; on Linux the kernel also kills it when its
// parent dies in any other way. Unix only.
//
// Nobody watches over the servers of an ensemble: who is to replace a primary, and when, is the
// caller's word. See [Ensemble.Promote].
package redisserver

import (
	"context"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a server that keeps an append-only file,
// which it syncs each second.
type Config struct {
	// NoSync leaves the syncs to the kernel, and never waits for one: what was answered is
	// not lost by kill -9. Never set it where speed is measured.
	NoSync bool
	// MinReplicas is how many replicas a primary has to have heard from within MaxLag to
	// take writes.
	MinReplicas int
	// MaxLag is in seconds, 10 if zero.
	MaxLag int
	// Port is the client port of a server that is alone; zero picks a free one.
	Port int

	cluster bool
}

// Server is one Redis. Addr and Pid apart, its methods are not safe for concurrent use.
// Its Mode is "leader" for a primary and "follower" for a replica.
type Server = child.Server

// Start starts a server that is alone, and returns once it serves. The end of ctx ends
// the attempt, not the server. The error is [ErrNotFound] if this machine has no Redis;
// otherwise it ends with the server's last words.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	e, err := StartEnsemble(ctx, 1, cfg)
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}
