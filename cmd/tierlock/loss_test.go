//go:build linux || darwin || freebsd

package main_test

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// After a kill -9 of the runner, the command and all processes that it has started are killed, and then the lock is released.
func TestKilledRunnerEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	stage := commandtest.NewStage(t)
	p := start(t, server.Addr(), commandtest.Under("-grace 200ms", "/remains", stage.Command("daemon")...)...)
	command, rest := stage.First(), stage.Next()
	command.Leave(3)
	p.Says("held until these processes end")
	p.Signal(syscall.SIGKILL)
	rest.Dies()
	next := start(t, server.Addr(), commandtest.Under("-w 20s", "/remains", "true")...)
	next.Exits(0)
}

// If the keeper is killed or stopped, it can neither renew the lease nor end the command. The front then kills everything before the
// servers grant the lock to another process.
func TestFrontKillsEverythingWithoutTheKeeper(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for name, c := range map[string]struct {
		signal    syscall.Signal
		relatives []string
	}{
		"killed": {syscall.SIGKILL, []string{"family", "daemon"}}, "stopped": {syscall.SIGSTOP, []string{"family"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stage := commandtest.NewStage(t)
			p := start(t, server.Addr(), commandtest.Under(short, "/"+name, stage.Command(append(c.relatives, "stubborn")...)...)...)
			victims := []*commandtest.Section{stage.First()}
			for range c.relatives {
				victims = append(victims, stage.Next())
			}
			contend(t, server, "/"+name, stage)
			need.OK(t, syscall.Kill(p.Keeper(), c.signal))
			next := stage.Followed(victims...)
			p.Exits(74)
			next.Leave(0)
		})
	}
}

// On Linux the kernel kills the command together with its keeper, even if the front is stopped and cannot kill it.
func TestKilledKeeperKillsTheCommandWithoutTheFront(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no death signal")
	}
	server := startServer(t)
	stage := commandtest.NewStage(t)
	p := start(t, server.Addr(), commandtest.Under("", "/both", stage.Command()...)...)
	section, keeper := stage.First(), p.Keeper()
	p.Signal(syscall.SIGSTOP)
	need.OK(t, syscall.Kill(keeper, syscall.SIGKILL))
	section.Dies()
	p.Signal(syscall.SIGCONT)
	p.Exits(74)
}

// A front that is stopped loses nothing: the keeper renews the lease, and the command goes on.
func TestStoppedRunnerLosesNothing(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	stage := commandtest.NewStage(t)
	p := start(t, server.Addr(), commandtest.Under(short, "/paused", stage.Command()...)...)
	section := stage.First()
	p.Signal(syscall.SIGSTOP)
	time.Sleep(5 * time.Second) // longer than the session
	section.Lives()
	start(t, server.Addr(), commandtest.Under("-n", "/paused", "true")...).Exits(75)
	p.Signal(syscall.SIGCONT)
	section.Leave(6)
	p.Exits(6)
}

// A stopped command keeps its lock. If the lock is lost, KILL still ends the command.
func TestStoppedCommandIsKilledOnLoss(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	proxy := proxyTo(t, server)
	stage := commandtest.NewStage(t)
	p := start(t, proxy.Addr(), commandtest.Under(short, "/halted", stage.Command("stubborn")...)...)
	section := stage.First()
	section.Signal(syscall.SIGSTOP)
	time.Sleep(5 * time.Second) // longer than the session
	start(t, server.Addr(), commandtest.Under("-n", "/halted", "true")...).Exits(75)
	section.Lives()
	black(proxy)
	section.Dies()
	p.Exits(74)
}

// A command that has lost some of its permits is killed at once, because another process may have them.
func TestDeletedPermitKillsTheCommand(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	conn := operate(t, server)
	stage := commandtest.NewStage(t)
	p := start(t, server.Addr(), commandtest.Under("-permits 3 -weight 2", "/deleted/pool", stage.Command("stubborn")...)...)
	section := stage.First()
	permits, _, err := conn.Children("/deleted/pool/leases")
	need.Must(t, fmt.Sprintf("permits %q, %v", permits, err), err == nil && len(permits) == 2)
	need.OK(t, conn.Delete("/deleted/pool/leases/"+permits[1], -1))
	section.Dies()
	p.Exits(74)
	p.Says("KILL at once")
	commandtest.Want(t, at(server.Addr()), "run -n -permits 3 -weight 3 /deleted/pool -- true", 0) // succeeds because all permits are free
}
