//go:build linux || darwin || freebsd

package main_test

import (
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// The runner forwards signals to the command's process group, and its exit status is that of the command.
func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) { // a signal that is ignored here, as under nohup, is ignored in the command, too
			continue
		}
		stage := commandtest.NewStage(t)
		p := start(t, server.Addr(), commandtest.Under("", "/signals", stage.Command("family")...)...)
		sections := []*commandtest.Section{stage.First(), stage.Next()}
		for _, other := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGQUIT} {
			p.Signal(other)
			for _, section := range sections {
				section.Hears(other)
			}
		}
		p.Signal(sig)
		p.Exits(128 + int(sig))
		for _, section := range sections {
			section.Dies()
		}
	}
}

// A signal ends a runner that still looks for a server.
func TestSignalEndsTheConnecting(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	proxy := proxyTo(t, server)
	proxy.Refuse()
	p := start(t, proxy.Addr(), commandtest.Under("", "/connecting", "true")...)
	p.Keeper() // until it catches signals, the keeper may die of the signal
	p.Signal(syscall.SIGTERM)
	p.Exits(128 + int(syscall.SIGTERM))
}

// After a kill -9 of a waiting runner, its contender leaves the queue.
func TestKilledWaiterLeavesTheQueue(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	conn := operate(t, server)
	stage := commandtest.NewStage(t)
	start(t, server.Addr(), commandtest.Under("", "/waiter", stage.Command()...)...)
	holder := stage.First()
	p := start(t, server.Addr(), commandtest.Under("-session 4s", "/waiter", stage.Command()...)...)
	childtest.Eventually(t, "a contender", func() bool { return len(queue(t, conn, "/waiter")) == 2 })
	killed := time.Now()
	p.Signal(syscall.SIGKILL)
	childtest.Eventually(t, "a shorter queue", func() bool { return len(queue(t, conn, "/waiter")) == 1 })
	need.AtMost(t, "the contender stayed for", time.Since(killed), 3*time.Second)
	stage.NoMore()
	holder.Leave(0)
}

// The command starts with the same blocked and ignored signals as without tierlock.
func TestDispositionsAreThoseOfTheRunner(t *testing.T) {
	t.Parallel()
	const script = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"
	want, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		t.Skip(err)
	}
	p := start(t, startServer(t).Addr(), commandtest.Under("", "/dispositions", "sh", "-c", script)...)
	p.Exits(0)
	need.Equal(t, "signals of the command, with and without the lock", p.Stdout.String(), string(want))
}

// Signals that are ignored at the start stay ignored, as nohup requires.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	stage := commandtest.NewStage(t)
	line := append([]string{"-c", `trap "" HUP; exec "$0" "$@"`, commandtest.Program}, commandtest.Under("", "/nohup", stage.Command()...)...)
	p := startWith(t, server.Addr(), func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh"}, line...)
	})
	section := stage.First()
	p.Signal(syscall.SIGHUP)
	section.Signal(syscall.SIGHUP)
	p.Signal(syscall.SIGUSR1)
	section.Hears(syscall.SIGUSR1)
	section.Lives()
	section.Leave(0)
	p.Exits(0)
}
