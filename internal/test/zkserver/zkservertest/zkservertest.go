// Package zkservertest has helpers for tests on a real ZooKeeper: certificates, and checks of examples.
package zkservertest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
)

// WrongServer checks that an example ends with an error in time if the address in ZK_SERVERS has no server.
func WrongServer(t *testing.T, run func(context.Context) error) {
	t.Helper()
	t.Setenv("ZK_SERVERS", "127.0.0.1:1") // no server listens on this address
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begun := time.Now()
		if err := run(ctx); err == nil || time.Since(begun) > 11*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// programVar is the environment variable that marks a process that runs the program under test.
const programVar = "TIERLOCK_PROGRAM"

// Main runs the tests of a program, or the program itself if [Program] has started this process.
func Main(m *testing.M, program func()) {
	if os.Getenv(programVar) == "" {
		os.Exit(m.Run())
	}
	program()
}

// Program returns the command for the program under test, with additional environment. The command is not started yet. The program is
// killed at the end of the test.
func Program(t *testing.T, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), programVar+"=1"), env...)
	return cmd
}

// Start starts a [Program], and logs its output.
func Start(t *testing.T, env ...string) *exec.Cmd {
	t.Helper()
	cmd := Program(t, env...)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() }) // the end of the test has killed the program by then
	return cmd
}
