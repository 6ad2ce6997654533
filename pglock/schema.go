package pglock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Schema is the SQL that makes the schema tierlock with all that the locks need, for those who
// migrate their databases themselves. It runs as it is in a transaction, once, under any role
// that may create a schema in the database.
//
//go:embed schema.sql
var Schema string

// schemaVersion is what tierlock.version() returns. A change of schema.sql is another version.
const schemaVersion = 12

// Migrate creates the schema tierlock in the database of pool, in one transaction, and does nothing
// if it is there. It may run in several processes at once. After an error nothing is changed, unless
// the answer of the commit was lost; it can be called again.
//
// The role of pool then owns the schema. Another role that is to use locks needs
//
//	GRANT USAGE ON SCHEMA tierlock TO locker;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tierlock TO locker;
//	GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA tierlock TO locker;
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := checkServer(ctx, pool); err != nil {
		return fmt.Errorf("pglock: migrate: %w", err)
	}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('tierlock schema', 0))"); err != nil {
			return err
		}
		var present bool
		if err := tx.QueryRow(ctx, "SELECT to_regnamespace('tierlock') IS NOT NULL").Scan(&present); err != nil {
			return err
		}
		if present {
			return checkSchema(ctx, tx)
		}
		_, err := tx.Exec(ctx, Schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("pglock: migrate: %w", err)
	}
	return nil
}

// errRights says that the role may not do all that locks need.
var errRights = errors.New("rights are missing")

const rightsSQL = `SELECT current_user::text, coalesce(string_agg(privilege || ' ON ' || object, ', ' ORDER BY object, privilege), '')
	FROM (
	SELECT 'tierlock.' || name AS object, privilege, has_table_privilege('tierlock.' || name, privilege) AS has
		FROM unnest(ARRAY['session', 'contender', 'grace_period', 'floor', 'semaphore']) name,
			unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) privilege
		WHERE name IN ('session', 'contender') OR privilege <> 'DELETE'
	UNION ALL SELECT 'SEQUENCE tierlock.token', privilege, has_sequence_privilege('tierlock.token', privilege)
		FROM unnest(ARRAY['USAGE', 'UPDATE']) privilege) rights WHERE NOT has`

// checkRights returns errRights, with what is missing, unless the role has all that locks in tables need.
func checkRights(ctx context.Context, q querier) error {
	var role, missing string
	if err := q.QueryRow(ctx, rightsSQL).Scan(&role, &missing); err != nil || missing == "" {
		return err
	}
	return fmt.Errorf("%w: role %s has not %s; grant it what pglock.Migrate names", errRights, role, missing)
}

// errEncoding says that the database cannot encode what this process says of itself.
var errEncoding = errors.New("the database cannot encode it")

// errServer says that the server speaks the protocol of PostgreSQL, and does not keep advisory locks as PostgreSQL does.
var errServer = errors.New("the locks need PostgreSQL itself")

// checkServer returns errServer for systems whose advisory locks do not exclude other sessions. The queues have no order there.
func checkServer(ctx context.Context, q querier) error {
	var version string
	if err := q.QueryRow(ctx, "SELECT version()", pgx.QueryExecModeExec).Scan(&version); err != nil {
		return err
	}
	return checkVersion(version)
}

// checkVersion is checkServer for the answer of version().
func checkVersion(version string) error {
	for mark, system := range map[string]string{"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"} {
		if strings.Contains(version, mark) {
			return fmt.Errorf("%w: in %s pg_advisory_lock does not exclude other sessions (%s)", errServer, system, version)
		}
	}
	return nil
}

// errSchema says that the database has no schema tierlock that this package can use.
var errSchema = errors.New("no schema tierlock of the right version")

// checkSchema returns errSchema, with what to do about it, unless all is there.
func checkSchema(ctx context.Context, q querier) error {
	var database string
	var present bool
	if err := q.QueryRow(ctx, `SELECT current_database(), EXISTS (SELECT FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace
		WHERE n.nspname = 'tierlock' AND f.proname = 'version')`).Scan(&database, &present); err != nil {
		return err
	}
	if !present {
		return fmt.Errorf("%w: database %s has none, this program needs version %d; run pglock.Migrate, or the SQL of pglock.Schema",
			errSchema, database, schemaVersion)
	}
	var version int
	if err := q.QueryRow(ctx, "SELECT tierlock.version()").Scan(&version); err != nil {
		return err
	}
	remedy := "use a later release of pglock"
	switch {
	case version == schemaVersion:
		return nil
	case version < schemaVersion:
		remedy = "end all programs that have locks there, drop the schema, and run pglock.Migrate"
	}
	return fmt.Errorf("%w: database %s has version %d, this program needs version %d; %s", errSchema, database, version, schemaVersion, remedy)
}
