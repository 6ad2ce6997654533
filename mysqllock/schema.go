package mysqllock

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

//go:embed schema.sql
var firstSchema string

// A history has one SQL text for each version of the schema, beginning with firstVersion. The first text creates the tables and procedures.
// Each later text upgrades the schema from the version before it. The last statement of each text records its version in tierlock_state.
type history []string

// firstVersion is the oldest version of the schema that can be upgraded.
const firstVersion = 1

var versions = history{firstSchema}

// newest returns the newest version in the history, which is the one that the program needs.
func (h history) newest() int { return firstVersion + len(h) - 1 }

// Schema is the SQL that creates the tables and procedures, for programs with their own database migrations. Execute it with the
// command-line client (mysql DATABASE < schema.sql), because it changes the delimiter. Unlike [Migrate], it does not upgrade an older
// schema.
var Schema = strings.Join(versions, "\n")

// Migrate creates tables and procedures in the database of db, or upgrades older ones in place. Their names begin with tierlock_. Migrate
// does nothing if the schema has the version of this program or the next version. Several processes may call Migrate at the same time.
// MySQL and MariaDB commit each of its statements separately, so after an error some of them may have been executed. Call Migrate again
// after an error.
//
// A schema serves programs of its own version and of the previous version. To upgrade programs one by one, run Migrate of the new release
// first. Holders and waiters of the old release continue. A program refuses a schema that is older than the program, or newer by more than
// one version. The error says what to do.
//
// If another transaction has locked a table, Migrate gives up after a second and tries again later, until ctx ends. Therefore renewals of
// leases never wait for long. Give ctx a deadline.
//
// Migrate needs the rights CREATE, ALTER, INDEX, CREATE ROUTINE, ALTER ROUTINE, SELECT, INSERT and UPDATE on the database. Grant other
// users that use locks these rights:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON app.* TO locker;
//
// All programs that use the same locks should connect as the same user. A user can wake the connections of another user only with the right
// CONNECTION ADMIN (CONNECTION_ADMIN in MySQL). Without this right, waiters poll 20 times a second.
func Migrate(ctx context.Context, db *sql.DB) error { return versions.migrate(ctx, db) }

func (h history) migrate(ctx context.Context, db *sql.DB) error {
	for {
		err := h.upgrade(ctx, db)
		if err == nil {
			return nil
		}
		if number := refusal(err); number != 1205 && number != 1213 { // neither a table that another transaction has locked, nor a deadlock
			return fmt.Errorf("mysqllock: migrate: %w", err)
		}
		select {
		case <-time.After(400 * time.Millisecond): // gives renewals time to succeed
		case <-ctx.Done():
			return fmt.Errorf("mysqllock: migrate: %w: %w", context.Cause(ctx), err)
		}
	}
}

// upgrade executes the SQL of the versions that the database does not have yet. Its connection waits for a table for a second at most.
func (h history) upgrade(ctx context.Context, db *sql.DB) error {
	c, err := connect(ctx, db, 8*time.Second)
	if err != nil {
		return err
	}
	defer c.discard()
	var alone sql.NullInt64
	const enter = "SELECT GET_LOCK(CONCAT('tierlock migrate ', LEFT(SHA2(DATABASE(), 256), 16)), 60)"
	switch err := c.QueryRowContext(ctx, enter).Scan(&alone); {
	case err != nil:
		return err
	case alone.Int64 != 1:
		return errors.New("another Migrate has been running for a minute, or the data source name has no database")
	}
	version, _, err := found(ctx, c.Conn)
	if err != nil {
		return err
	}
	var missing history
	switch {
	case version == 0:
		missing = h
	case version >= firstVersion:
		missing = h[min(version-firstVersion+1, len(h)):]
	}
	for _, version := range missing {
		if err := execute(ctx, c, version); err != nil {
			return err
		}
	}
	return h.check(ctx, c.Conn)
}

// execute executes the statements of a version. An interrupted Migrate may have executed some of them before. It may also have created
// procedures from another text.
func execute(ctx context.Context, c *conn, version string) error {
	_, statements, _ := strings.Cut(version, "DELIMITER //\n")
	for statement := range strings.SplitSeq(statements, "\n//\n") {
		if _, name, ok := strings.Cut(statement, "CREATE PROCEDURE "); ok {
			name, _, _ = strings.Cut(name, "(")
			if _, err := c.ExecContext(ctx, "DROP PROCEDURE IF EXISTS "+name); err != nil {
				return err
			}
		}
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := c.ExecContext(ctx, repeatable.Replace(statement)); err != nil {
			return err
		}
	}
	return nil
}

var repeatable = strings.NewReplacer("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ",
	"INSERT INTO tierlock_bucket", "INSERT IGNORE INTO tierlock_bucket")

// errSchema means that the database has no tables that this package can use.
var errSchema = errors.New("no tierlock tables of the right version")

// found returns the version of the schema in a database, and 0 if there is no schema. It also returns the name of the database.
func found(ctx context.Context, c *sql.Conn) (version int, database string, err error) {
	var name sql.NullString
	if err := c.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&name); err != nil {
		return 0, "", err
	}
	if !name.Valid {
		return 0, "", fmt.Errorf("%w: the data source name has no database", errSchema)
	}
	err = c.QueryRowContext(ctx, "SELECT version FROM tierlock_state").Scan(&version)
	switch {
	case refusal(err) == noTable, errors.Is(err, sql.ErrNoRows):
		err = nil
	case slices.Contains(denied, refusal(err)):
		err = fmt.Errorf("%w: %w; if the tables exist, grant the rights that mysqllock.Migrate names", errRights, err)
	}
	return version, name.String, err
}

// check returns errSchema, with advice, unless the schema in the database has the newest version of this history, or the version after it.
func (h history) check(ctx context.Context, c *sql.Conn) error {
	version, database, err := found(ctx, c)
	if err != nil {
		return err
	}
	is, remedy := fmt.Sprintf("version %d", version), "run mysqllock.Migrate"
	switch newest := h.newest(); {
	case version == newest, version == newest+1:
		return nil
	case version == 0:
		is, remedy = "none", remedy+", or the SQL of mysqllock.Schema"
	case version > newest:
		remedy = "use a later release of mysqllock"
	case version < firstVersion:
		remedy = "end all programs that have locks there, drop all tables and procedures whose names begin with tierlock_, and " + remedy
	}
	return fmt.Errorf("%w: database %s has %s, this program needs version %d or %d; %s", errSchema, database, is, h.newest(), h.newest()+1,
		remedy)
}
