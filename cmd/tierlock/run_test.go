//go:build linux || darwin || freebsd

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// With a wrong command line, nothing is run and the status is 64. Without a server, it is 69.
func TestNothingRunsAfterAnError(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	stage := commandtest.NewStage(t)
	for _, c := range []struct {
		status int
		args   []string
		want   string
	}{
		{64, commandtest.Under("", "x", stage.Command()...), "the path has to begin with /"},
		{64, commandtest.Under("-n -w 1s", "/x", stage.Command()...), "give only one of them"},
		{64, commandtest.Under("-E 300", "/x", stage.Command()...), "want a number from 0 to 255"},
		{64, commandtest.Under("-store zk://http://a:1", "/x", stage.Command()...), "no scheme"},
		{64, append([]string{"run", "/x"}, stage.Command()...), "the command is missing"},
		{64, []string{"run", "/x", "--"}, "the command is missing"},
		{64, []string{"run", "--", "true"}, "the PATH of the lock is missing"},
		{64, commandtest.Under("-tls-cert x", "/x", stage.Command()...), "must be given together"},
		{64, commandtest.Under("-auth-file /nonexistent", "/x", stage.Command()...), "-auth-file"},
		{69, commandtest.Under("-store zk://no-such-host.invalid:2181 -connect-timeout 4s", "/x", stage.Command()...), "no-such-host.invalid"},
	} {
		p := start(t, server.Addr(), c.args...)
		p.Exits(c.status)
		p.Says(c.want)
		if text := p.Stderr.String(); !strings.HasPrefix(text, "tierlock: ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%v says more or less than a line:\n%s", c.args, text)
		}
	}
	stage.NoMore()
}

// A command that wants the lock of its own run would wait for itself. The message says so.
func TestNestedRunIsToldThatItWaitsForItself(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	inner := append([]string{commandtest.Program}, commandtest.Under("-w 2s", "/nested", "true")...)
	p := start(t, server.Addr(), commandtest.Under("", "/nested", inner...)...)
	p.Exits(75)
	p.Says("/nested: waiting: held by the tierlock run that started this one")
	p.Says("/nested: not acquired within 2s: held by the tierlock run that started this one")
}

// The command inherits the runner's open files, such as those of a jobserver of make.
func TestOpenFilesReachTheCommand(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	const script = `cat <&3; ls -l /proc/self/fd | sed 's/.* -> //' | grep -c pipe`
	open := func(cmd *exec.Cmd) {
		in, out, err := os.Pipe()
		need.OK(t, err)
		t.Cleanup(func() { in.Close() })
		out.WriteString("from three ")
		out.Close()
		cmd.ExtraFiles = []*os.File{in, in}
	}
	plain := exec.Command("sh", "-c", script)
	open(plain)
	want, err := plain.Output()
	need.Must(t, fmt.Sprintf("%q, %v", want, err), err == nil && strings.HasPrefix(string(want), "from three "))
	p := startWith(t, server.Addr(), open, commandtest.Under("", "/files", "sh", "-c", script)...)
	p.Exits(0)
	need.Equal(t, "the content of descriptor 3 and the number of pipes, with and without the lock", p.Stdout.String(), string(want))
}

// The run keeps the lock until everything that the command has started has ended, also processes in other sessions.
func TestLockStaysForWhatIsLeft(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	stage := commandtest.NewStage(t)
	p := start(t, server.Addr(), commandtest.Under("", "/left", stage.Command("family", "daemon")...)...)
	command, one, other := stage.First(), stage.Next(), stage.Next()
	command.Leave(4)
	command.Dies()
	p.Says("held until these processes end")
	start(t, server.Addr(), commandtest.Under("-n", "/left", "true")...).Exits(75)
	one.Leave(0)
	one.Dies()
	start(t, server.Addr(), commandtest.Under("-n", "/left", "true")...).Exits(75)
	other.Leave(0)
	p.Exits(4)
	start(t, server.Addr(), commandtest.Under("-n", "/left", "true")...).Exits(0)
}
