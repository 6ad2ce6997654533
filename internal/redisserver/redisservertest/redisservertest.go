// Package redisservertest gives tests a real Redis.
//
// Where there is none to be had, a test is skipped; with TIERLOCK_REQUIRE_SERVER=1 in
// the environment it fails.
package redisservertest

import (
	"testing"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/redisserver"
)

// Start starts a server that stops at the end of the test.
func Start(tb testing.TB, cfg redisserver.Config) *redisserver.Server {
	tb.Helper()
	s, err := redisserver.Start(tb.Context(), cfg)
	childtest.Use(tb, s, err, redisserver.ErrNotFound)
	return s
}

// StartEnsemble starts a primary and n-1 replicas that stop at the end of the test.
func StartEnsemble(tb testing.TB, n int, cfg redisserver.Config) *redisserver.Ensemble {
	tb.Helper()
	e, err := redisserver.StartEnsemble(tb.Context(), n, cfg)
	childtest.Use(tb, e, err, redisserver.ErrNotFound)
	return e
}

// StartCluster starts a cluster of so many primaries, with a replica each, that stops at the end of the test.
func StartCluster(tb testing.TB, shards int, cfg redisserver.Config) *redisserver.Cluster {
	tb.Helper()
	c, err := redisserver.StartCluster(tb.Context(), shards, cfg)
	childtest.Use(tb, c, err, redisserver.ErrNotFound)
	return c
}

// Check ends the test unless err is nil: it skips it if a server is missing and may be,
// and fails it otherwise.
func Check(tb testing.TB, err error) {
	tb.Helper()
	childtest.Check(tb, err, redisserver.ErrNotFound)
}
