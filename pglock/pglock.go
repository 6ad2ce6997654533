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

// New returns a registry of locks in the database of pool, which needs the schema of [Migrate] or of the command tierlock migrate. It
// blocks until there is a session or ctx ends: give ctx a deadline. It connects as pool does, with BeforeConnect and AfterConnect,
// on connections of its own: one that renews and listens, and up to four for requests. The pool itself serves [Tx].
//
// A wrong option, a missing schema or one of another version, a missing permission, and a server or pooler that cannot be used are errors
// at once. If the server cannot be reached, the error wraps the cause of ctx and names the address. After an error nothing is left. After
// New has returned, the end of ctx has no effect.
//
// Caution: close the registry before the pool. The package does not notice a closed pool: locks go on, on their own connections, and Tx
// fails.
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

// A base is the common part of both kinds of locks.
type base struct {
	ear     ear
	tier    *queue.Tier
	pool    *pgxpool.Pool // belongs to the program
	options options
	self    second.Description
	hangUp  context.CancelFunc // when nothing is to be said any more
}

// Name is that of a contender, or of a session.
func (s *base) Name(string) string { return rand.Text() }

// ValidatePath returns nil if path can name a lock: not empty, without empty components, without a slash at the end, at most 1024 bytes of
// UTF-8 without control characters. It need not begin with a slash; "/locks/x" and "locks/x" are different locks.
func ValidatePath(path string) error { return second.CheckPath("pglock", path, second.Components) }
