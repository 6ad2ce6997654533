package agent_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The environment variable roleOfAgent makes a test process an agent that clients can kill and stop: its value is the socket. The variable
// leaseOfAgent has the lease of its holds in seconds.
const roleOfAgent, leaseOfAgent = "TIERLOCK_SERVE", "TIERLOCK_LEASE"

// The tests of the clients in other languages run against an agent at a real socket, with clients that are killed and stopped. Where the
// agent itself has to die or stop, the tests start agents as processes.
func TestClients(t *testing.T) {
	if socket := os.Getenv(roleOfAgent); socket != "" {
		beAgent(t, socket)
		return
	}
	const lease = 3 * time.Second
	for client, command := range map[string][]string{
		"python": {"python3", "test_tierlock.py"},
		"node":   {"node", "test.js"},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(command[0])
			if err != nil {
				if os.Getenv("TIERLOCK_REQUIRE_SERVER") == "1" {
					t.Fatal(err, "; scripts/get-clients.sh installs it")
				}
				t.Skip(err, "; scripts/get-clients.sh installs it")
			}
			socket := strings.TrimPrefix(serve(t, lease), "unix:")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, program, command[1:]...)
			run.WaitDelay = 5 * time.Second // processes that the tests have started may still have the pipe
			run.Dir = filepath.Join("../../../../clients", client)
			run.Env = append(os.Environ(), "TIERLOCK_AGENT="+socket, fmt.Sprintf("%s=%v", leaseOfAgent, lease.Seconds()),
				"TIERLOCK_AGENT_PROGRAM="+need.Get(os.Executable())(t), "PYTHONDONTWRITEBYTECODE=1")
			out, err := run.CombinedOutput()
			need.WantErr(t, string(out), err, nil)
		})
	}
}

// beAgent serves until the test that has started it dies or closes its end of the pipe.
func beAgent(t *testing.T, socket string) {
	lease := need.Get(time.ParseDuration(os.Getenv(leaseOfAgent) + "s"))(t)
	_ = os.Remove(socket) // of an agent that was killed
	serveAt(t, socket, lease)
	fmt.Println("serves")
	need.Get(io.Copy(io.Discard, os.Stdin))(t)
}
