package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
)

// The tests of the clients in other languages run against an agent at a real socket, with processes that are killed and stopped.
func TestClients(t *testing.T) {
	const lease = 3 * time.Second
	for client, command := range map[string][]string{
		"python": {"python3", "test_tierlock.py"},
		"node":   {"node", "--test", "test.js"},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(command[0])
			if err != nil {
				t.Skip(err)
			}
			socket := strings.TrimPrefix(serve(t, lease), "unix:")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, program, command[1:]...)
			run.Dir = filepath.Join("../../../../clients", client)
			run.Env = append(os.Environ(), "TIERLOCK_AGENT="+socket, fmt.Sprintf("TIERLOCK_LEASE=%v", lease.Seconds()), "PYTHONDONTWRITEBYTECODE=1")
			out, err := run.CombinedOutput()
			need.WantErr(t, string(out), err, nil)
		})
	}
}
