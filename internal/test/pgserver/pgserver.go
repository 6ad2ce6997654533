// Package pgserver runs private, real PostgreSQL servers as child processes, for tests and
// demos.
//
// A server listens for clients on a free port of the loopback, trusts all of them, keeps its data in a temporary directory, and runs
// until its Stop. On Linux the kernel also kills it when its parent dies without that. PostgreSQL refuses to run as root. In that case
// the user postgres runs it, or else the user nobody. Unix only.
//
// Members of an ensemble are a primary and its standbys, which reach one another through this process: see [Ensemble.Isolate].
package pgserver

import (
	"context"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a fast server for tests that loses
// nothing.
type Config struct {
	// NoSync acknowledges writes before they are on the disk; a kill -9 does not lose them, because the kernel has them. Never set it where
	// speed is measured.
	NoSync bool
	// Synchronous acknowledges a write only when one of the standbys has it. If no standby is connected, no write is acknowledged.
	Synchronous bool
	// Settings are further lines of postgresql.conf, such as "wal_sender_timeout = '1s'".
	Settings []string
	// Port is the client port of a single server; zero picks a free one.
	Port int
}

// Server is one PostgreSQL. Pause, Resume and Kill affect all its processes. Its Mode is "leader" for a primary and "follower" for a
// standby. Only Addr and Pid are safe for concurrent use.
type Server = child.Server

// Start starts a single server, and returns once it serves requests. The end of ctx ends the attempt, not the server. The error is
// [ErrNotFound] if this machine has no PostgreSQL; otherwise it ends with the server's last output.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	e, err := StartEnsemble(ctx, 1, cfg)
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}

// URL returns the URL of the servers at addrs, which are host:port, for the superuser and the database postgres.
func URL(addrs ...string) string { return url(superuser, addrs) }

// PlainURL returns the URL for a user without special rights, who owns the database that the URL names.
func PlainURL(addrs ...string) string { return url(plain, addrs) }
