// Package zkservertest has what tests on a real ZooKeeper share: certificates for it, and what is promised of examples.
package zkservertest

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

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
