package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// New returns a registry of locks in the database of db. The database needs the tables that [Migrate] or the command tierlock migrate
// creates. The driver has to be go-sql-driver/mysql.
//
// New takes up to six connections of db, and keeps them until the registry is closed: one that renews the session, one that listens for
// events, and up to four for requests. Therefore a busy pool does not end leases. New returns an error if the limit of the pool
// (SetMaxOpenConns) is below eight. Each [Tx] uses one more connection while it runs. Close the registry before db.
//
// New blocks until it has a session or ctx ends: give ctx a deadline. It fails at once if an option is wrong, if the tables are missing or
// have a version that New refuses (see [Migrate]), or if a right is missing. It also fails at once if the server or a proxy cannot be used.
// If the server cannot be reached, the error wraps the cause of ctx. After an error nothing is left in the database. The end of ctx has no
// effect after New has returned.
//
// After a restart or a failover, the server grants no new lock for one lease TTL, 15 s by default. Holders keep their locks, unless an
// asynchronous replica takes over without their rows: see "What is promised" in the documentation of this package.
func New(ctx context.Context, db *sql.DB, opts ...tier.RegistryOption) (*tier.Registry, error) {
	settings := second.Defaults
	_, share, err := second.Split[noOption, tier.Option](&settings, opts)
	if err == nil {
		err = settings.Check(maxTTL, leaseUnit)
	}
	if err == nil {
		err = checkPool(db)
	}
	if err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	t := open(db, settings)
	if !settings.Lazy {
		err = t.Ready(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("mysqllock: %w", err)
	}
	return tier.New(t, share...), nil
}

// noOption is the type of options that only this store has. No option has this type.
type noOption interface{ onlyOfMySQL() }

// minPool is the lowest limit of a pool that New accepts. The registry keeps all but two of these connections, and leaves two to the
// program.
const minPool = maxRequests + 4

func checkPool(db *sql.DB) error {
	if db == nil {
		return errors.New("nil pool")
	}
	if limit := db.Stats().MaxOpenConnections; limit > 0 && limit < minPool {
		return fmt.Errorf("the pool is limited to %d connections, but the locks keep up to %d: set a limit of at least %d with SetMaxOpenConns",
			limit, minPool-2, minPool)
	}
	return nil
}

// ValidatePath returns nil if path can name a lock. A lock path is not empty, has no empty component and no slash at the end, and is at
// most 1024 bytes of UTF-8 without control characters. The path need not begin with a slash; "/locks/x" and "locks/x" are different locks.
func ValidatePath(path string) error { return second.CheckPath("mysqllock", path, second.Components) }
