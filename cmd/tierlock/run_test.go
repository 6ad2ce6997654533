//go:build linux || darwin || freebsd

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The command's end is run's own, in the way of a shell.
func TestStatusIsTheCommands(t *testing.T) {
	server := startServer(t)
	for script, want := range map[string]int{
		"exit 0": 0, "exit 3": 3, "exit 75": 75, "kill -TERM $$": 143, "kill -KILL $$": 137,
	} {
		start(t, server.Addr(), under("", "/status", "sh", "-c", script)...).exits(want)
	}
	start(t, server.Addr(), under("", "/status", "no-such-command")...).exits(127)
	start(t, server.Addr(), under("", "/status", "./no-such-command")...).exits(127)
	start(t, server.Addr(), under("", "/status", "./main.go")...).exits(126)
}

// A wrong command line runs nothing and exits 64; a missing server exits 69.
func TestNothingRunsAfterAnError(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{64, under("", "x", stage.command()...), "it has to begin with /"},
		{64, under("", "/a//b", stage.command()...), "empty component"},
		{64, under("-n -w 1s", "/x", stage.command()...), "want one of them"},
		{64, under("-E 300", "/x", stage.command()...), "want a number from 0 to 255"},
		{64, under("-grace 2s -session 4s", "/x", stage.command()...), "-grace 2s is too long"},
		{64, under("-zk http://a:1", "/x", stage.command()...), "no scheme"},
		{64, append([]string{"run", "/x"}, stage.command()...), "the command is missing"},
		{64, []string{"run", "/x", "--"}, "the command is missing"},
		{64, []string{"run", "--", "true"}, "the PATH of the lock is missing"},
		{64, []string{"keep", "/x", "--", "true"}, "not by hand"},
		{64, under("-tls-cert x", "/x", stage.command()...), "one is missing"},
		{64, under("-auth-file /nonexistent", "/x", stage.command()...), "-auth-file"},
		{69, under("-zk 127.0.0.1:1 -connect-timeout 500ms", "/x", stage.command()...), "refused"},
		{69, under("-zk no-such-host.invalid:2181 -connect-timeout 4s", "/x", stage.command()...), "no-such-host.invalid"},
	} {
		p := start(t, server.Addr(), c.args...)
		p.exits(c.status)
		p.says(c.want)
		if text := p.stderr.String(); !strings.HasPrefix(text, "tierlock: ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%v says more or less than a line:\n%s", c.args, text)
		}
	}
	stage.nobody()
}

// What is taken is not waited for with -n, and for as long as -w says. The status is 75, or that
// of -E, and who has the lock is named.
func TestNotAcquired(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	conn := operate(t, server)
	holder := start(t, server.Addr(), under("", "/taken", stage.command()...)...)
	section := stage.first()
	for flags, status := range map[string]int{"-n": 75, "-w 300ms": 75, "-n -E 0": 0, "-w 300ms -E 9": 9} {
		p := start(t, server.Addr(), under(flags, "/taken", stage.command()...)...)
		p.exits(status)
		p.says(fmt.Sprintf("held by process %d on ", holder.keeper()))
	}
	stage.nobody()
	if left := queue(t, conn, "/taken"); len(left) != 1 {
		t.Errorf("the queue is %v, want the holder alone", left)
	}
	section.lives()
	section.leave(5)
	holder.exits(5)
	start(t, server.Addr(), under("-n", "/taken", "true")...).exits(0)
}

// A command that wants the lock of its own run waits for itself, and is told so.
func TestNestedRunIsToldThatItWaitsForItself(t *testing.T) {
	server := startServer(t)
	inner := append([]string{program}, under("-w 2s", "/nested", "true")...)
	p := start(t, server.Addr(), under("", "/nested", inner...)...)
	p.exits(75)
	p.says("/nested: waiting: held by the tierlock run that this one runs under")
	p.says("/nested: not acquired within 2s: held by the tierlock run that this one runs under")
}

// Standard input, the path and the token reach the command; tokens grow.
func TestWhatTheCommandGets(t *testing.T) {
	server := startServer(t)
	var tokens [2]int64
	for i := range tokens {
		p := startWith(t, server.Addr(), func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("from stdin") },
			under("", "/gets", "sh", "-c", `cat; echo " $TIERLOCK_PATH $TIERLOCK_TOKEN"`)...)
		p.exits(0)
		if _, err := fmt.Sscanf(p.stdout.String(), "from stdin /gets %d\n", &tokens[i]); err != nil {
			t.Errorf("the command prints %q: %v", p.stdout, err)
		}
		if p.stderr.String() != "" {
			t.Errorf("there are messages without -v: %s", p.stderr)
		}
	}
	if tokens[0] >= tokens[1] || tokens[0] <= 0 {
		t.Errorf("tokens %v do not grow", tokens)
	}
}

// The command has the descriptors that the runner was given, such as those of a jobserver of make.
func TestOpenFilesReachTheCommand(t *testing.T) {
	server := startServer(t)
	const script = `cat <&3; ls -l /proc/self/fd | sed 's/.* -> //' | grep -c pipe`
	open := func(cmd *exec.Cmd) {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close() })
		out.WriteString("from three ")
		out.Close()
		cmd.ExtraFiles = []*os.File{in, in}
	}
	plain := exec.Command("sh", "-c", script)
	open(plain)
	want, err := plain.Output()
	if err != nil || !strings.HasPrefix(string(want), "from three ") {
		t.Fatalf("%q, %v", want, err)
	}
	p := startWith(t, server.Addr(), open, under("", "/files", "sh", "-c", script)...)
	p.exits(0)
	if got := p.stdout.String(); got != string(want) {
		t.Errorf("the command prints %q, want what is in descriptor 3 and how many pipes there are without a lock, %q", got, want)
	}
}

// Runs on one path take turns.
func TestOneAtATime(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	var tools []*tool
	for range 4 {
		tools = append(tools, start(t, server.Addr(), under("-v", "/turns", stage.command()...)...))
	}
	for range tools {
		section := stage.first()
		time.Sleep(20 * time.Millisecond) // for others to intrude
		section.leave(0)
	}
	for _, p := range tools {
		p.exits(0)
		p.says("acquired after")
	}
}

// The lock stays until all that the command has started is gone, also what has left its session.
func TestLockStaysForWhatIsLeft(t *testing.T) {
	server := startServer(t)
	stage := newStage(t)
	p := start(t, server.Addr(), under("", "/left", stage.command("family", "daemon")...)...)
	command, one, other := stage.first(), stage.next(), stage.next()
	command.leave(4)
	command.dies()
	p.says("kept for what it has left running")
	start(t, server.Addr(), under("-n", "/left", "true")...).exits(75)
	one.leave(0)
	one.dies()
	start(t, server.Addr(), under("-n", "/left", "true")...).exits(75)
	other.leave(0)
	p.exits(4)
	start(t, server.Addr(), under("-n", "/left", "true")...).exits(0)
}
