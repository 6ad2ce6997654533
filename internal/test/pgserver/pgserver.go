// Package pgserver runs private, real PostgreSQL servers as child processes, for tests and
// demos.
//
// A server takes clients on the loopback, on a port nobody else uses, trusts all of them,
// keeps its data in a temporary directory, and ends with its Stop; on Linux the kernel also
// kills it when its parent dies in any other way. PostgreSQL refuses to be run by root: then
// the user postgres runs it, or nobody. Unix only.
//
// Members of an ensemble are a primary and its standbys, which talk to one another by way
// of this process: see [Ensemble.Isolate].
package pgserver

import (
	"context"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a fast server for tests that loses
// nothing.
type Config struct {
	// NoSync acknowledges writes before they are on the disk: what kill -9 leaves to the
	// kernel is not lost. Never set it where speed is measured.
	NoSync bool
	// Synchronous acknowledges writes when one of the standbys has them. Without a standby
	// that is in touch no write is acknowledged.
	Synchronous bool
	// Settings are further lines of postgresql.conf, such as "wal_sender_timeout = '1s'".
	Settings []string
	// Port is the client port of a server that is alone; zero picks a free one.
	Port int
}

// Server is one PostgreSQL. Pause, Resume and Kill concern all its processes. Its Mode is
// "leader" for a primary and "follower" for a standby. Addr and Pid apart, its methods are
// not safe for concurrent use.
type Server = child.Server

// Start starts a server that is alone, and returns once it serves. The end of ctx ends
// the attempt, not the server. The error is [ErrNotFound] if this machine has no
// PostgreSQL; otherwise it ends with the server's last words.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	e, err := StartEnsemble(ctx, 1, cfg)
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}

// URL is how a client reaches the databases of the servers at addrs, which are host:port:
// as the superuser of the database postgres.
func URL(addrs ...string) string { return url(superuser, addrs) }

// PlainURL is the URL of a user who may do nothing but what every user may, and owns the
// database that it names.
func PlainURL(addrs ...string) string { return url(plain, addrs) }
