// Package childtest says what becomes of a test that cannot get its server.
package childtest

import (
	"errors"
	"os"
	"testing"
)

// Check ends the test unless err is nil: it skips it if a server is missing and may be,
// and fails it otherwise. A server may be missing unless TIERLOCK_REQUIRE_SERVER=1 is in
// the environment.
func Check(tb testing.TB, err, missing error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, missing) && os.Getenv("TIERLOCK_REQUIRE_SERVER") != "1":
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
}

// Use is Check for what a server's start returned; the server stops at the end of the
// test.
func Use(tb testing.TB, server interface{ Stop() error }, err, missing error) {
	tb.Helper()
	Check(tb, err, missing)
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Error(err)
		}
	})
}
