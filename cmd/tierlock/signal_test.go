//go:build linux || darwin || freebsd

package main_test

import (
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// Signals reach the command's process group, and its end is the runner's.
func TestSignalsReachTheCommand(t *testing.T) {
	server := startServer(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(sig) { // under nohup, which the command inherits
			continue
		}
		stage := newStage(t)
		p := start(t, server.Addr(), under("", "/signals", stage.command("family")...)...)
		sections := []*section{stage.first(), stage.next()}
		for _, other := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGQUIT} {
			p.signal(other)
			for _, section := range sections {
				section.hears(other)
			}
		}
		p.signal(sig)
		p.exits(128 + int(sig))
		for _, section := range sections {
			section.dies()
		}
	}
}

// A signal while it waits ends it, and leaves nothing in the queue.
func TestSignalEndsTheWait(t *testing.T) {
	server := startServer(t)
	conn := operate(t, server)
	stage := newStage(t)
	start(t, server.Addr(), under("", "/wait", stage.command()...)...)
	holder := stage.first()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		p := start(t, server.Addr(), under("", "/wait", stage.command()...)...)
		eventually(t, "a contender", func() bool { return len(queue(t, conn, "/wait")) == 2 })
		p.signal(sig)
		p.exits(128 + int(sig))
		if left := queue(t, conn, "/wait"); len(left) != 1 {
			t.Errorf("after %v the queue is %v", sig, left)
		}
	}
	stage.nobody()
	holder.leave(0)
}

// It also ends whoever still looks for a server.
func TestSignalEndsTheConnecting(t *testing.T) {
	server := startServer(t)
	proxy := proxyTo(t, server)
	proxy.Refuse()
	p := start(t, proxy.Addr(), under("", "/connecting", "true")...)
	p.keeper() // which may die of the signal before it can catch it
	p.signal(syscall.SIGTERM)
	p.exits(128 + int(syscall.SIGTERM))
}

// A kill -9 of a runner that waits leaves nothing in the queue, either.
func TestKilledWaiterLeavesTheQueue(t *testing.T) {
	server := startServer(t)
	conn := operate(t, server)
	stage := newStage(t)
	start(t, server.Addr(), under("", "/waiter", stage.command()...)...)
	holder := stage.first()
	p := start(t, server.Addr(), under("-session 4s", "/waiter", stage.command()...)...)
	eventually(t, "a contender", func() bool { return len(queue(t, conn, "/waiter")) == 2 })
	killed := time.Now()
	p.signal(syscall.SIGKILL)
	eventually(t, "a shorter queue", func() bool { return len(queue(t, conn, "/waiter")) == 1 })
	if took := time.Since(killed); took > 3*time.Second {
		t.Errorf("the contender stayed for %v", took)
	}
	stage.nobody()
	holder.leave(0)
}

// The command starts with the signals blocked and ignored that it would have without a lock.
func TestDispositionsAreThoseOfTheRunner(t *testing.T) {
	const script = "grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"
	want, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		t.Skip(err)
	}
	p := start(t, startServer(t).Addr(), under("", "/dispositions", "sh", "-c", script)...)
	p.exits(0)
	if got := p.stdout.String(); got != string(want) {
		t.Errorf("the command has\n%swithout a lock it has\n%s", got, want)
	}
}

// What is ignored when it starts stays ignored, as nohup wants.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	line := append([]string{"-c", `trap "" HUP; exec "$0" "$@"`, program}, under("", "/nohup", stage.command()...)...)
	p := startWith(t, server.Addr(), func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh"}, line...)
	})
	section := stage.first()
	p.signal(syscall.SIGHUP)
	section.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1)
	section.hears(syscall.SIGUSR1)
	section.lives()
	section.leave(0)
	p.exits(0)
}
