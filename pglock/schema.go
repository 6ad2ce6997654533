package pglock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed schema.sql
var firstSchema string

//go:embed version13.sql
var schema13 string

// A history has one SQL text for each version of the schema, beginning with firstVersion. The first text creates the schema. Each later
// text upgrades the schema from the version before it, and also changes the result of tierlock.version().
type history []string

// firstVersion is the oldest version of the schema that can be upgraded.
const firstVersion = 12

var versions = history{firstSchema, schema13}

// newest returns the newest version in the history, which is the one that the program needs.
func (h history) newest() int { return firstVersion + len(h) - 1 }

// Schema is the SQL that creates the schema tierlock, for programs with their own database migrations. Execute Schema once, unchanged, in a
// transaction, under any role that may create a schema in the database. Unlike [Migrate], Schema does not upgrade an older schema.
var Schema = strings.Join(versions, "\n")

// Migrate creates the schema tierlock in the database of pool, or upgrades an older schema in place. Migrate runs in one transaction.
// Migrate does nothing if the schema has the version of this program or the next version. Several processes may call Migrate at the same
// time. After an error the database is unchanged, unless the answer to the commit was lost. In both cases call Migrate again.
//
// A schema serves programs of its own version and of the previous version. To upgrade programs one by one, run Migrate of the new release
// first, or let each program call Migrate when it starts. Holders and waiters of the old release continue. A program refuses a schema that
// is older than the program, or newer by more than one version. The error says what to do.
//
// An upgrade locks tables for a moment. If another transaction has locked a table, Migrate gives up after 100 ms and tries again later,
// until ctx ends. Therefore renewals of leases never wait for long. Give ctx a deadline.
//
// The role of pool owns the schema, and only this role can upgrade it. Grant other roles that use locks these privileges:
//
//	GRANT USAGE ON SCHEMA tierlock TO locker;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tierlock TO locker;
//	GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tierlock TO locker;
func Migrate(ctx context.Context, pool *pgxpool.Pool) error { return versions.migrate(ctx, pool) }

func (h history) migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := checkServer(ctx, pool); err != nil {
		return fmt.Errorf("pglock: migrate: %w", err)
	}
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	for {
		err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error { return h.upgrade(ctx, tx) })
		if err == nil {
			return nil
		}
		if code := refusal(err); code != "55P03" && code != "40P01" { // neither a table that another transaction has locked, nor a deadlock
			return fmt.Errorf("pglock: migrate: %w", err)
		}
		select {
		case <-time.After(400 * time.Millisecond): // gives renewals time to succeed
		case <-ctx.Done():
			return fmt.Errorf("pglock: migrate: %w: %w", context.Cause(ctx), err)
		}
	}
}

// upgrade executes the SQL of the versions that the database does not have yet. While an upgrade waits for a table, renewals wait behind
// it, and a renewal has a short timeout. The timeout of the upgrade is therefore even shorter. If the process is paused or disconnected
// during the upgrade, the server ends the transaction.
func (h history) upgrade(ctx context.Context, tx pgx.Tx) error {
	const alone = "SELECT pg_advisory_xact_lock(hashtextextended('tierlock schema', 0))"
	const brief = "SELECT set_config('lock_timeout', '100ms', true), set_config('idle_in_transaction_session_timeout', '2s', true)"
	for _, sql := range []string{alone, brief} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	version, _, err := found(ctx, tx)
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
	for _, sql := range missing {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return h.check(ctx, tx)
}

// errRights means that the database role lacks rights that the locks need.
var errRights = errors.New("rights are missing")

const rightsSQL = `SELECT current_user::text, coalesce(string_agg(privilege || ' ON ' || object, ', ' ORDER BY object, privilege), '')
	FROM (
	SELECT 'tierlock.' || name AS object, privilege, has_table_privilege('tierlock.' || name, privilege) AS has
		FROM unnest(ARRAY['session', 'contender', 'grace_period', 'floor', 'semaphore']) name,
			unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
		WHERE name IN ('session', 'contender') OR privilege <> 'DELETE'
	UNION ALL SELECT 'SEQUENCE tierlock.token', privilege, has_sequence_privilege('tierlock.token', privilege)
		FROM unnest(ARRAY['USAGE', 'UPDATE']) privilege) rights WHERE NOT has`

// checkRights returns an error if the role lacks rights that locks in tables need. The error wraps errRights and names the missing rights.
func checkRights(ctx context.Context, q querier) error {
	var role, missing string
	if err := q.QueryRow(ctx, rightsSQL).Scan(&role, &missing); err != nil || missing == "" {
		return err
	}
	return fmt.Errorf("%w: role %s lacks %s; grant it the privileges that pglock.Migrate names", errRights, role, missing)
}

// errEncoding means that the database's encoding lacks a character in the description of this process.
var errEncoding = errors.New("the database cannot encode it")

// errServer means that the server speaks PostgreSQL's protocol, but its advisory locks do not behave like those of PostgreSQL.
var errServer = errors.New("the locks need PostgreSQL itself")

// checkServer returns errServer for database systems whose advisory locks do not exclude other sessions. On such systems the queues in
// tables would have no order either, because they depend on advisory locks.
func checkServer(ctx context.Context, q querier) error {
	var version string
	if err := q.QueryRow(ctx, "SELECT version()", pgx.QueryExecModeExec).Scan(&version); err != nil {
		return err
	}
	return checkVersion(version)
}

// checkVersion is checkServer for the result of version().
func checkVersion(version string) error {
	for mark, system := range map[string]string{"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"} {
		if strings.Contains(version, mark) {
			return fmt.Errorf("%w: in %s pg_advisory_lock does not exclude other sessions (%s)", errServer, system, version)
		}
	}
	return nil
}

// errSchema means that the database has no schema tierlock that this package can use.
var errSchema = errors.New("no schema tierlock of the right version")

// found returns the version of the schema in a database, and 0 if there is no schema. It also returns the name of the database.
func found(ctx context.Context, q querier) (version int, database string, err error) {
	var schema, known bool
	if err := q.QueryRow(ctx, `SELECT current_database(), to_regnamespace('tierlock') IS NOT NULL, EXISTS (SELECT FROM pg_proc f
		JOIN pg_namespace n ON n.oid = f.pronamespace WHERE n.nspname = 'tierlock' AND f.proname = 'version')`).
		Scan(&database, &schema, &known); err != nil || !schema {
		return 0, database, err
	}
	if !known {
		return 0, database, fmt.Errorf("%w: database %s has a schema tierlock that pglock did not create; drop it", errSchema, database)
	}
	err = q.QueryRow(ctx, "SELECT tierlock.version()").Scan(&version)
	return version, database, err
}

// check returns errSchema, with advice, unless the schema in the database has the newest version of this history, or the version after it.
func (h history) check(ctx context.Context, q querier) error {
	version, database, err := found(ctx, q)
	if err != nil {
		return err
	}
	is, remedy := fmt.Sprintf("version %d", version), "run pglock.Migrate"
	switch newest := h.newest(); {
	case version == newest, version == newest+1:
		return nil
	case version == 0:
		is, remedy = "none", remedy+", or the SQL of pglock.Schema"
	case version > newest:
		remedy = "use a later release of pglock"
	case version < firstVersion:
		remedy = "end all programs that have locks there, drop the schema, and " + remedy
	}
	return fmt.Errorf("%w: database %s has %s, this program needs version %d or %d; %s", errSchema, database, is, h.newest(), h.newest()+1,
		remedy)
}
