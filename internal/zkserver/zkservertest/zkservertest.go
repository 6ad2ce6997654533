// Package zkservertest gives tests a real ZooKeeper.
//
// Where there is none to be had, a test is skipped; with TIERLOCK_REQUIRE_SERVER=1 in
// the environment it fails.
package zkservertest

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

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

// WrongServer checks that an example that finds no server where ZK_SERVERS says that it is ends with an error in time.
func WrongServer(t *testing.T, run func(context.Context) error) {
	t.Helper()
	t.Setenv("ZK_SERVERS", "127.0.0.1:1") // where nobody is
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		if err := run(ctx); err == nil || time.Since(begun) > 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// Main runs the tests of a program, or the program itself, as a process that a test has started with a variable of the environment.
func Main(m *testing.M, variable string, program func()) {
	if os.Getenv(variable) == "" {
		os.Exit(m.Run())
	}
	program()
}
