//go:build linux || darwin || freebsd

package main_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// short is the session of these tests: the margin is 1.33 s.
const short = "-session 4s "

// contend starts another run that waits for the path, and returns when it is in the queue.
func contend(t *testing.T, servers, path string, stage *stage, waiting func() int) *tool {
	t.Helper()
	before := waiting()
	p := start(t, servers, under(short, path, stage.command()...)...)
	eventually(t, "another contender", func() bool { return waiting() > before })
	return p
}

// A holder that cannot reach the servers ends its command before they give the lock to another:
// with TERM, or with KILL after the grace if it will not listen.
func TestBlackholeEndsTheCommandBeforeTheLockGoes(t *testing.T) {
	for name, modes := range map[string][]string{"obedient": nil, "stubborn": {"stubborn"}, "family": {"stubborn", "daemon"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			conn := operate(t, server)
			proxy := proxyTo(t, server)
			stage := newStage(t)
			path := "/blackhole-" + name
			holder := start(t, proxy.Addr(), under(short, path, stage.command(modes...)...)...)
			victims := []*section{stage.first()}
			if name == "family" {
				victims = append(victims, stage.next())
			}
			contend(t, server.Addr(), path, stage, func() int { return len(queue(t, conn, path)) })
			proxy.Mute(zktest.ToServer)
			proxy.Mute(zktest.ToClient)
			muted := time.Now()
			next := stage.first()
			for _, victim := range victims {
				end := victim.dies()
				if margin := next.begun.Sub(end); margin < 0 {
					t.Errorf("the command ends %v after the next one began", -margin)
				} else {
					t.Logf("died %v after the cut, %v before the next one", end.Sub(muted), margin)
				}
			}
			holder.exits(74)
			if len(modes) > 0 {
				victims[0].hears(syscall.SIGTERM)
			}
			if strings.Contains(holder.stderr.String(), "tierlock keep") {
				t.Error("the keeper has left it to the front")
			}
			next.leave(0)
		})
	}
}

// When somebody breaks the lock the command gets KILL at once.
func TestBreakKillsAtOnce(t *testing.T) {
	server := startServer(t)
	conn := operate(t, server)
	stage := newStage(t)
	holder := start(t, server.Addr(), under("-v", "/broken", stage.command("stubborn")...)...)
	section := stage.first()
	for _, name := range queue(t, conn, "/broken") {
		if err := conn.Delete("/broken/"+name, -1); err != nil {
			t.Fatal(err)
		}
	}
	section.dies()
	holder.exits(74)
	holder.says("KILL at once")
	if len(section.said) > 0 {
		t.Error("the command got TERM")
	}
}

// After kill -9 of the runner the command gets TERM, then KILL, and then the lock is released.
func TestKilledRunnerEndsTheCommandAndReleasesTheLock(t *testing.T) {
	server := startServer(t)
	conn := operate(t, server)
	stage := newStage(t)
	p := start(t, server.Addr(), under("-grace 200ms", "/killed", stage.command("stubborn", "daemon")...)...)
	victims := []*section{stage.first(), stage.next()}
	contend(t, server.Addr(), "/killed", stage, func() int { return len(queue(t, conn, "/killed")) })
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	victims[0].hears(syscall.SIGTERM)
	next := stage.first()
	for _, victim := range victims {
		if end := victim.dies(); end.After(next.begun) {
			t.Errorf("a command outlives the lock by %v", end.Sub(next.begun))
		}
	}
	if took := next.begun.Sub(killed); took > 5*time.Second {
		t.Errorf("the lock is free after %v, as if its session had to time out", took)
	} else {
		t.Logf("the next one has the lock %v after the kill", took)
	}
	next.leave(0)
}

// The same when the command has ended, but not what it has started.
func TestKilledRunnerEndsWhatIsLeft(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	p := start(t, server.Addr(), under("-grace 200ms", "/remains", stage.command("daemon")...)...)
	command, rest := stage.first(), stage.next()
	command.leave(3)
	p.says("kept for what it has left running")
	p.signal(syscall.SIGKILL)
	rest.dies()
	next := start(t, server.Addr(), under("-w 20s", "/remains", "true")...)
	next.exits(0)
}

// After kill -9 of the keeper everything is killed at once, long before the session is over.
func TestKilledKeeperKillsEverything(t *testing.T) {
	server := startServer(t)
	conn := operate(t, server)
	stage := newStage(t)
	p := start(t, server.Addr(), under(short, "/orphaned", stage.command("stubborn", "family", "daemon")...)...)
	victims := []*section{stage.first(), stage.next(), stage.next()}
	contend(t, server.Addr(), "/orphaned", stage, func() int { return len(queue(t, conn, "/orphaned")) })
	killed := time.Now()
	if err := syscall.Kill(p.keeper(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.exits(74)
	for _, victim := range victims {
		took := victim.dies().Sub(killed)
		t.Logf("dead %v after the kill", took)
	}
	next := stage.first()
	for _, victim := range victims {
		if victim.end.After(next.begun) {
			t.Errorf("a command outlives the lock by %v", victim.end.Sub(next.begun))
		}
	}
	next.leave(0)
}

// On Linux the kernel kills the command with its keeper, even if the front is stopped and cannot.
func TestKilledKeeperKillsTheCommandWithoutTheFront(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no death signal")
	}
	server := startServer(t)
	stage := newStage(t)
	p := start(t, server.Addr(), under("", "/both", stage.command()...)...)
	section, keeper := stage.first(), p.keeper()
	p.signal(syscall.SIGSTOP)
	if err := syscall.Kill(keeper, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	section.dies()
	p.signal(syscall.SIGCONT)
	p.exits(74)
}

// A keeper that is stopped can neither renew the lease nor end the command: the front kills all
// before the servers give the lock away.
func TestStoppedKeeperKillsEverythingInTime(t *testing.T) {
	server := startServer(t)
	conn := operate(t, server)
	stage := newStage(t)
	p := start(t, server.Addr(), under(short, "/stopped", stage.command("family")...)...)
	victims := []*section{stage.first(), stage.next()}
	contend(t, server.Addr(), "/stopped", stage, func() int { return len(queue(t, conn, "/stopped")) })
	if err := syscall.Kill(p.keeper(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := stage.first()
	for _, victim := range victims {
		if margin := next.begun.Sub(victim.dies()); margin < 0 {
			t.Errorf("the command ends %v after the next one began", -margin)
		} else {
			t.Logf("died %v before the next one began", margin)
		}
	}
	p.exits(74)
	next.leave(0)
}

// A runner that is stopped is not missed: the lease is renewed, and the command lives.
func TestStoppedRunnerLosesNothing(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	p := start(t, server.Addr(), under("-session 2s", "/paused", stage.command()...)...)
	section := stage.first()
	p.signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second) // longer than the session
	section.lives()
	start(t, server.Addr(), under("-n", "/paused", "true")...).exits(75)
	p.signal(syscall.SIGCONT)
	section.leave(6)
	p.exits(6)
}

// A command that is stopped keeps its lock, and KILL reaches it all the same.
func TestStoppedCommandIsKilledOnLoss(t *testing.T) {
	server := startServer(t)
	proxy := proxyTo(t, server)
	stage := newStage(t)
	p := start(t, proxy.Addr(), under("-session 2s", "/halted", stage.command("stubborn")...)...)
	section := stage.first()
	section.signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second) // longer than the session
	start(t, server.Addr(), under("-n", "/halted", "true")...).exits(75)
	section.lives()
	proxy.Mute(zktest.ToServer)
	proxy.Mute(zktest.ToClient)
	section.dies()
	p.exits(74)
}
