//go:build linux || darwin || freebsd

package main_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
)

// "tierlock dev" runs a ZooKeeper server that ordinary ZooKeeper programs can use.
func TestDevIsAZooKeeperForPrograms(t *testing.T) {
	t.Parallel()
	server := start(t, "", "dev", "-port", "0")
	addr := server.Prints(server.Stdout, `in memory on (127\.0\.0\.1:\d+), for this machine only`)[1]

	held := start(t, addr, commandtest.Under("", "/jobs/report", "sleep", "60")...)
	childtest.Eventually(t, "the lock to be held", func() bool {
		out, err := exec.Command(commandtest.Program, "-store", "zk://"+addr, "ls", "/jobs").Output()
		return err == nil && strings.Contains(string(out), "/jobs/report")
	})
	commandtest.Want(t, at(addr), "run -n /jobs/report -- true", 75)
	held.Signal(syscall.SIGTERM)
	held.Exits(128 + int(syscall.SIGTERM))
	commandtest.Want(t, at(addr), "run -n /jobs/report -- true", 0)

	port := addr[strings.LastIndex(addr, ":")+1:]
	commandtest.Want(t, nil, "dev -port "+port, 64, "^tierlock: listen tcp "+addr, "address already in use", "-port")
	commandtest.Want(t, nil, "dev -port 0 -store zk://"+addr, 64, "not defined: -store")
	commandtest.Want(t, nil, "-store zk://"+addr+" dev -port 0", 64, "needs no store")
	if text := commandtest.Want(t, nil, "help dev", 0, "-port"); strings.Contains(text, "-store") || strings.Contains(text, "-o form") {
		t.Errorf("help lists flags that dev does not have:\n%s", text)
	}
	server.Signal(syscall.SIGINT)
	server.Exits(0)
}
