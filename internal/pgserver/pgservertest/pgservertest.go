// Package pgservertest gives tests a real PostgreSQL.
//
// Where there is none to be had, a test is skipped; with TIERLOCK_REQUIRE_SERVER=1 in
// the environment it fails.
package pgservertest

import (
	"testing"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/pgserver"
)

// Start starts a server that stops at the end of the test.
func Start(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	s, err := pgserver.Start(tb.Context(), cfg)
	childtest.Use(tb, s, err, pgserver.ErrNotFound)
	return s
}

// StartEnsemble starts a primary and n-1 standbys that stop at the end of the test.
func StartEnsemble(tb testing.TB, n int, cfg pgserver.Config) *pgserver.Ensemble {
	tb.Helper()
	e, err := pgserver.StartEnsemble(tb.Context(), n, cfg)
	childtest.Use(tb, e, err, pgserver.ErrNotFound)
	return e
}

// Check ends the test unless err is nil: it skips it if a server is missing and may be,
// and fails it otherwise.
func Check(tb testing.TB, err error) {
	tb.Helper()
	childtest.Check(tb, err, pgserver.ErrNotFound)
}

// StartPooler starts a PgBouncer that stops at the end of the test.
func StartPooler(tb testing.TB, server *pgserver.Server, mode string, settings ...string) *pgserver.Server {
	tb.Helper()
	s, err := pgserver.StartPooler(tb.Context(), server.Addr(), mode, settings...)
	childtest.Use(tb, s, err, pgserver.ErrNoPooler)
	return s
}
