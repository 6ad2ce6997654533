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

// New returns the locks of this process in the database of pool, where [Migrate] has made the schema, or
// the command tierlock migrate.
// It connects as pool does, with its hooks BeforeConnect and AfterConnect, but on connections of its
// own, which nobody else can keep busy: one that renews and listens, and up to four for requests.
// Pool itself serves [Tx].
//
// Caution: New does not notice that pool is closed, be it before or later. The locks go on, on their own connections, and Tx
// fails. Close the registry first.
//
// New waits until there is a session, or ctx is done, so give ctx a deadline. A wrong option is an error at once. If the server cannot
// be reached, the error wraps the cause of ctx and names the address. If the schema is missing or of another version, a permission is
// missing, or the server or the pooler in between cannot be used, the error says so, at once. After an error nothing is left. Once New
// has returned, the end of ctx has no effect.
//
// After a restart or a fail-over of PostgreSQL no new lock is granted for one lease TTL, 15 s by default. Holders keep their locks, unless
// an asynchronous standby takes over without their rows: "What is promised" in the documentation of this package has the details.
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

// A base is what both kinds of locks have.
type base struct {
	ear     ear
	tier    *queue.Tier
	pool    *pgxpool.Pool // somebody else's
	options options
	self    second.Description
	hangUp  context.CancelFunc // when nothing is to be said any more
}

// Name is that of a contender, or of a session.
func (s *base) Name(string) string { return rand.Text() }

// ValidatePath reports whether path may name a lock: not empty, no empty component,
// no slash at the end, valid UTF-8 without control characters, at most 1024 bytes. Unlike in
// ZooKeeper it need not begin with a slash; "/locks/x" and "locks/x" are different locks.
func ValidatePath(path string) error { return second.CheckPath("pglock", path, second.Components) }
