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

// A history is the SQL of the versions of the schema, from firstVersion on. The first one makes the tables and procedures. Each later one
// changes the version before it into its own. The last statement of each notes its version in tierlock_state.
type history []string

// firstVersion is the oldest version of the schema that can be upgraded.
const firstVersion = 1

var versions = history{firstSchema}

// newest is the version of a program that knows this history.
func (h history) newest() int { return firstVersion + len(h) - 1 }

// Schema is the SQL that makes the tables and procedures, for those who migrate their databases themselves. It is
// written for the command-line client, and changes the delimiter: mysql DATABASE < schema.sql. It does not upgrade a schema, as
// [Migrate] does.
var Schema = strings.Join(versions, "\n")

// Migrate creates the tables and procedures, whose names begin with tierlock_, in the database of db, or upgrades older ones in place. It
// does nothing if they are there in the version of this program, or in the next one. Several processes may call it at once. MySQL and
// MariaDB commit each of these statements by itself, so after an error some of them may have been executed: call it again.
//
// A schema serves programs of its own version and of the version before. To upgrade programs one by one, run Migrate of the new
// release first: holders and waiters of the old release go on. A program refuses a schema that is older than it is, or newer by more than
// one version, and its error says what to do. Where another transaction has a table, Migrate gives up after a second, which renewals
// survive, and tries again until ctx is done. Give ctx a deadline.
//
// Migrate needs the rights CREATE, ALTER, INDEX, CREATE ROUTINE, ALTER ROUTINE, SELECT, INSERT and UPDATE on the database. Another user
// that is to use locks needs
//
//	GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON app.* TO locker;
//
// All programs that use the same locks should connect as the same user. A user may not wake the connections of another one without the
// right CONNECTION ADMIN (CONNECTION_ADMIN in MySQL). Without it waiters ask for news 20 times a second.
func Migrate(ctx context.Context, db *sql.DB) error { return versions.migrate(ctx, db) }

func (h history) migrate(ctx context.Context, db *sql.DB) error {
	for {
		err := h.upgrade(ctx, db)
		if err == nil {
			return nil
		}
		if number := refusal(err); number != 1205 && number != 1213 { // a table that is not free, and a deadlock
			return fmt.Errorf("mysqllock: migrate: %w", err)
		}
		select {
		case <-time.After(400 * time.Millisecond): // for renewals
		case <-ctx.Done():
			return fmt.Errorf("mysqllock: migrate: %w: %w", context.Cause(ctx), err)
		}
	}
}

// upgrade executes what a database lacks of the history, over a connection that waits a second for a table at most.
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
		return errors.New("another Migrate has been under way for a minute, or the data source name has no database")
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

// execute executes the statements of a version. An interrupted Migrate may have executed some of them, or an earlier text of them.
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
	"INSERT INTO tierlock_slot", "INSERT IGNORE INTO tierlock_slot")

// errSchema says that the database has no tables that this package can use.
var errSchema = errors.New("no tierlock tables of the right version")

// found returns the version of the schema in a database, 0 if it has none.
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
		err = fmt.Errorf("%w: %w; if the tables are there, grant what mysqllock.Migrate names", errRights, err)
	}
	return version, name.String, err
}

// check returns errSchema, with what to do about it, unless the database has a schema for a program that knows this history: one of its
// own version, or of the next one.
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
		remedy = "end all programs that have locks there, drop what begins with tierlock_, and " + remedy
	}
	return fmt.Errorf("%w: database %s has %s, this program needs version %d or %d; %s", errSchema, database, is, h.newest(), h.newest()+1,
		remedy)
}
