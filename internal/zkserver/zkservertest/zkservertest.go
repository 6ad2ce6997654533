// Package zkservertest gives tests a real ZooKeeper.
//
// Where there is none to be had, a test is skipped; with TIERLOCK_REQUIRE_SERVER=1 in
// the environment it fails.
package zkservertest

import (
	"testing"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/zkserver"
)

// Start starts a server that stops at the end of the test.
func Start(tb testing.TB, cfg zkserver.Config) *zkserver.Server {
	tb.Helper()
	s, err := zkserver.Start(tb.Context(), cfg)
	childtest.Use(tb, s, err, zkserver.ErrNotFound)
	return s
}

// StartEnsemble starts n servers that stop at the end of the test.
func StartEnsemble(tb testing.TB, n int, cfg zkserver.Config) *zkserver.Ensemble {
	tb.Helper()
	e, err := zkserver.StartEnsemble(tb.Context(), n, cfg)
	childtest.Use(tb, e, err, zkserver.ErrNotFound)
	return e
}

// Check ends the test unless err is nil: it skips it if a server is missing and may be,
// and fails it otherwise.
func Check(tb testing.TB, err error) {
	tb.Helper()
	childtest.Check(tb, err, zkserver.ErrNotFound)
}
