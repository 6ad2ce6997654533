package pglock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// New returns a registry of locks in the database of pool, which needs the schema of [Migrate] or of the command tierlock migrate. New
// blocks until it has a session or ctx ends: give ctx a deadline. It opens its own connections with the settings of pool, including
// BeforeConnect and AfterConnect. One connection renews the session and listens, and up to four send requests. [Tx] uses the connections
// of pool itself.
//
// New fails at once if an option is wrong, if the schema is missing or has a version that it refuses (see [Migrate]), or if a permission is
// missing. It also fails at once if the server or a connection pooler cannot be used. If the server cannot be reached, the error wraps the
// cause of ctx and names the address. After an error nothing is left in the database. The end of ctx has no effect after New has returned.
//
// Caution: close the registry before the pool. The package does not notice that the pool is closed: locks stay held over the package's own
// connections, and Tx fails.
//
// After a restart or a failover of PostgreSQL no new lock is granted for one lease TTL, 15 s by default. Holders keep their locks, unless
// an asynchronous standby takes over without their rows: see "Grace periods and lost data" in the documentation of this package.
func New(ctx context.Context, pool *pgxpool.Pool, opts ...tier.RegistryOption) (*tier.Registry, error) {
	return front(ctx, pool, opts, open)
}

func front(ctx context.Context, pool *pgxpool.Pool, opts []tier.RegistryOption, open func(*pgxpool.Pool, options) (*queue.Tier, error),
) (*tier.Registry, error) {
	o, share, err := newOptions(opts)
	if err == nil && pool == nil {
		err = errors.New("nil pool")
	}
	if err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	t, err := open(pool, o)
	if err == nil && !o.Lazy {
		err = t.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("pglock: %w", err)
	}
	return tier.New(t, share...), nil
}

// A base is the common part of both stores, the one with tables and the one with advisory locks.
type base struct {
	notifyConn notifyConn
	tier       *queue.Tier
	pool       *pgxpool.Pool // belongs to the program
	options    options
	self       second.Description
	hangUp     context.CancelFunc // closes all connections of the store at once
}

// Name returns a new random name for a contender or a session.
func (s *base) Name(string) string { return rand.Text() }

// ValidatePath returns nil if path can name a lock. A lock path is not empty, has no empty component and no slash at the end, and is at
// most 1024 bytes of UTF-8 without control characters. The path need not begin with a slash; "/locks/x" and "locks/x" are different locks.
func ValidatePath(path string) error { return second.CheckPath("pglock", path, second.Components) }
