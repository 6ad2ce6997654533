// Package etcdservertest gives tests a real etcd.
//
// Where there is none to be had, a test is skipped; with TIERLOCK_REQUIRE_SERVER=1 in
// the environment it fails.
package etcdservertest

import (
	"testing"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/etcdserver"
)

// Start starts a server that stops at the end of the test.
func Start(tb testing.TB, cfg etcdserver.Config) *etcdserver.Server {
	tb.Helper()
	s, err := etcdserver.Start(tb.Context(), cfg)
	childtest.Use(tb, s, err, etcdserver.ErrNotFound)
	return s
}

// StartEnsemble starts n servers that stop at the end of the test.
func StartEnsemble(tb testing.TB, n int, cfg etcdserver.Config) *etcdserver.Ensemble {
	tb.Helper()
	e, err := etcdserver.StartEnsemble(tb.Context(), n, cfg)
	childtest.Use(tb, e, err, etcdserver.ErrNotFound)
	return e
}

// Check ends the test unless err is nil: it skips it if a server is missing and may be,
// and fails it otherwise.
func Check(tb testing.TB, err error) {
	tb.Helper()
	childtest.Check(tb, err, etcdserver.ErrNotFound)
}
