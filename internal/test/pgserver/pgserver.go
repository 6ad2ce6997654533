// Package pgserver runs private, real PostgreSQL servers as child processes, for tests and
// demos.
//
// A server listens for clients on a free port of the loopback, and trusts all of them. It keeps its data in a temporary directory, and runs
// until its Stop. If its parent dies without calling Stop, Linux kills the server. PostgreSQL refuses to run as root. If this process is
// root, the server runs as the user postgres, or as a user without rights if there is no such user. The package works only on Unix.
//
// The members of an ensemble are a primary and its standbys. They reach one another through this process: see [Ensemble.Isolate].
package pgserver

import (
	"context"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a fast server for tests that loses
// nothing.
type Config struct {
	// NoSync acknowledges writes before they are on the disk. A kill -9 does not lose them, because the kernel has them. Never set NoSync
	// where speed is measured.
	NoSync bool
	// Synchronous acknowledges a write only when one of the standbys has it. If no standby is connected, the primary acknowledges no write.
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

// PlainURL returns the URL for a user without special rights. That user owns the database in the URL.
func PlainURL(addrs ...string) string { return url(plain, addrs) }
