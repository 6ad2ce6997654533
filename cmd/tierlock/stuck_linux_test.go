package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// startStuck starts tierlock with a full pipe as its stderr, from which no process reads.
func startStuck(t *testing.T, servers string, args ...string) *commandtest.Tool {
	t.Helper()
	var ends [2]int
	need.OK(t, syscall.Pipe(ends[:]))
	t.Cleanup(func() { syscall.Close(ends[0]) })
	syscall.SetNonblock(ends[1], true)
	for chunk := make([]byte, 4096); len(chunk) > 0; {
		if _, err := syscall.Write(ends[1], chunk); errors.Is(err, syscall.EAGAIN) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	syscall.SetNonblock(ends[1], false)
	full := os.NewFile(uintptr(ends[1]), "a pipe that is full")
	defer full.Close()
	return startWith(t, servers, func(cmd *exec.Cmd) { cmd.Stderr = full }, args...)
}

// isStuck reports whether a thread of a process is blocked in a write to a pipe.
func isStuck(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/wchan", pid))
	for _, thread := range threads {
		if where, _ := os.ReadFile(thread); strings.Contains(string(where), "pipe_w") {
			return true
		}
	}
	return false
}

// If stderr is not read, the runner still ends the command in time, and still forwards signals.
func TestNothingWaitsForTheReaderOfStderr(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	conn := operate(t, server)
	for name, test := range map[string]func(t *testing.T, path string, stage *commandtest.Stage){
		"loss": func(t *testing.T, path string, stage *commandtest.Stage) {
			proxy := proxyTo(t, server)
			p := startStuck(t, proxy.Addr(), commandtest.Under(short, path, stage.Command("stubborn")...)...)
			section := stage.First()
			contend(t, server, path, stage)
			black(proxy)
			next := stage.Followed(section)
			section.Hears(syscall.SIGTERM)
			next.Leave(0)
			p.Exits(74)
		},
		"asked for the lock": func(t *testing.T, path string, stage *commandtest.Stage) {
			p := startStuck(t, server.Addr(), commandtest.Under("-revocable -grace 200ms", path, stage.Command("stubborn")...)...)
			section := stage.First()
			(console{server}).want(t, "revoke "+path, 0, "it ends its command")
			section.Dies()
			p.Exits(137)
		},
		"something is left": func(t *testing.T, path string, stage *commandtest.Stage) {
			p := startStuck(t, server.Addr(), commandtest.Under("", path, stage.Command("daemon")...)...)
			command, rest := stage.First(), stage.Next()
			command.Leave(4)
			childtest.Eventually(t, "a message that nobody reads", func() bool { return isStuck(p.Keeper()) })
			p.Signal(syscall.SIGUSR1)
			rest.Hears(syscall.SIGUSR1)
			rest.Leave(0)
			p.Exits(4)
		},
		"verbose": func(t *testing.T, path string, stage *commandtest.Stage) {
			p := startStuck(t, server.Addr(), commandtest.Under("-v", path, stage.Command()...)...)
			stage.First().Leave(5)
			p.Exits(5)
		},
		"no keeper": func(t *testing.T, path string, stage *commandtest.Stage) {
			p := startStuck(t, server.Addr(), commandtest.Under("", path, stage.Command("daemon")...)...)
			victims := []*commandtest.Section{stage.First(), stage.Next()}
			need.OK(t, syscall.Kill(p.Keeper(), syscall.SIGKILL))
			for _, victim := range victims {
				victim.Dies()
			}
			p.Exits(74)
		},
		"a signal while it waits": func(t *testing.T, path string, stage *commandtest.Stage) {
			holder := start(t, server.Addr(), commandtest.Under("", path, stage.Command()...)...)
			section := stage.First()
			p := startStuck(t, server.Addr(), commandtest.Under("-v", path, stage.Command()...)...)
			childtest.Eventually(t, "a contender", func() bool { return len(queue(t, conn, path)) == 2 })
			childtest.Eventually(t, "a message that nobody reads", func() bool { return isStuck(p.Keeper()) })
			p.Signal(syscall.SIGTERM)
			p.Exits(143)
			section.Leave(0)
			holder.Exits(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, "/stuck/"+strings.ReplaceAll(name, " ", "-"), commandtest.NewStage(t))
		})
	}
}
