package mysqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
)

// New returns the locks of this process in the database of db, where [Migrate] has made the tables, or the command tierlock migrate.
//
// It takes up to six connections of db and keeps them until the registry is closed: one that renews, one that listens, and up to four
// for requests. So a busy pool does not end leases. New refuses a pool with a limit (SetMaxOpenConns) below eight. The driver has to
// be go-sql-driver/mysql. [Tx] uses a further connection while it runs. Close the registry before db.
//
// New waits until there is a session, or ctx is done, so give ctx a deadline. A wrong option is an error at once. If the server cannot
// be reached, the error wraps the cause of ctx. If the tables are missing or of another version, a right is missing, or the server or
// the proxy in between cannot be used, the error says so, at once. After an error nothing is left. Once New has returned, the end of
// ctx has no effect.
//
// After a restart or a fail-over of the server no new lock is granted for one lease TTL, 15 s by default. Holders keep their locks, unless
// an asynchronous replica takes over without their rows: "What is promised" in the documentation of this package has the details.
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

// A noOption is an option of this store: there are none.
type noOption interface{ onlyOfMySQL() }

// minPool is how many connections a pool has to have at least: those that the locks keep, and two for the program.
const minPool = maxRequests + 4

func checkPool(db *sql.DB) error {
	if db == nil {
		return errors.New("nil pool")
	}
	if limit := db.Stats().MaxOpenConnections; limit > 0 && limit < minPool {
		return fmt.Errorf("the pool is limited to %d connections, and the locks keep up to %d: set at least %d by SetMaxOpenConns",
			limit, minPool-2, minPool)
	}
	return nil
}

// ValidatePath reports whether path may name a lock: not empty, no empty component,
// no slash at the end, valid UTF-8 without control characters, at most 1024 bytes. Unlike in
// ZooKeeper it need not begin with a slash; "/locks/x" and "locks/x" are different locks.
func ValidatePath(path string) error { return second.CheckPath("mysqllock", path, second.Components) }
