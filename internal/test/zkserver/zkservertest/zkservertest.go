// Package zkservertest has what tests on a real ZooKeeper share: certificates for it, and what is promised of examples.
package zkservertest

import (
	"context"
	"os"
	"os/exec"
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

// programVar marks a process of the program that a test is of.
const programVar = "TIERLOCK_PROGRAM"

// Main runs the tests of a program, or the program itself as a process that [Program] is for.
func Main(m *testing.M, program func()) {
	if os.Getenv(programVar) == "" {
		os.Exit(m.Run())
	}
	program()
}

// Program is the program that the test is of, not started yet, with more environment. The end of the test kills it.
func Program(t *testing.T, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), programVar+"=1"), env...)
	return cmd
}

// Start starts a [Program], and logs what it says.
func Start(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := Program(t, env...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() }) // which the end of the test has killed by then
	return cmd
}
