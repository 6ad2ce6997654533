//go:build linux || darwin || freebsd || windows

// Package commandtest runs the command as users do, on any store: the real program, real servers, real signals. [Run] is the suite that
// the command has to pass on each store.
package commandtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/logtest"
)

// Patience is how long to wait for something that has to happen, even on a busy machine.
const Patience = 60 * time.Second

// Program is the command, built by [Main].
var Program string

// shared is a server for all tests, which each use paths of their own. The first test that needs it starts it.
var shared = func() (*child.Server, error) { return nil, nil }

// Server returns the shared server.
func Server(t *testing.T) *child.Server {
	t.Helper()
	server, err := shared()
	childtest.Check(t, err)
	return server
}

// Main is for TestMain: it builds the command and runs the tests, on a server that start starts.
func Main(m *testing.M, start func() (*child.Server, error)) {
	if len(os.Args) > 1 && os.Args[1] == "section" {
		beSection(os.Args[2:])
	}
	flag.Parse()
	flag.Set("test.parallel", "6") // nearly all of the time is waiting
	shared = sync.OnceValues(start)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if Program = os.Getenv("TIERLOCK_COMMAND"); Program == "" { // it is given where there is no Go
		dir, err := os.MkdirTemp("", "tierlock-command-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		Program = filepath.Join(dir, "tierlock")
		if runtime.GOOS == "windows" {
			Program += ".exe"
		}
		if out, err := exec.Command("go", "build", "-o", Program, "github.com/tierlock/tierlock/cmd/tierlock").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
	}
	defer func() {
		if server, _ := shared(); server != nil {
			server.Stop()
		}
	}()
	return m.Run()
}

// A Tool is a running command.
type Tool struct {
	Stdout, Stderr *logtest.Log

	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts the command with additional environment. It is killed at the end of the test.
func Start(t *testing.T, env []string, args ...string) *Tool {
	t.Helper()
	return StartWith(t, env, func(*exec.Cmd) {}, args...)
}

// StartWith is Start, and first calls prepare.
func StartWith(t *testing.T, env []string, prepare func(*exec.Cmd), args ...string) *Tool {
	t.Helper()
	p := &Tool{t: t, cmd: exec.Command(Program, args...), Stdout: new(logtest.Log), Stderr: new(logtest.Log), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Stdout, p.Stderr
	p.cmd.WaitDelay = time.Second // what outlives it may keep its output open
	prepare(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() // the state tells
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s %s said:\n%s", filepath.Base(Program), strings.Join(args, " "), p.Stderr)
		}
	})
	return p
}

// Signal sends a signal to the process that was started.
func (p *Tool) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// Status waits for the end and returns the status.
func (p *Tool) Status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience):
		p.t.Fatalf("%v does not end", p.cmd.Args[1:])
	}
	return p.cmd.ProcessState.ExitCode()
}

// Exits waits for the end and checks the status.
func (p *Tool) Exits(want int) {
	p.t.Helper()
	if got := p.Status(); got != want {
		p.t.Errorf("%v: %v, want exit status %d; it says:\n%s", p.cmd.Args[1:], p.cmd.ProcessState, want, p.Stderr)
	}
}

// Says waits until stderr has want.
func (p *Tool) Says(want string) {
	p.t.Helper()
	childtest.Eventually(p.t, fmt.Sprintf("%q on stderr", want), func() bool { return strings.Contains(p.Stderr.String(), want) })
}

// Prints waits until an output has a line that matches, and returns its parts.
func (p *Tool) Prints(o *logtest.Log, pattern string) (found []string) {
	p.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	childtest.Eventually(p.t, fmt.Sprintf("%q in the output", pattern), func() bool {
		found = re.FindStringSubmatch(o.String())
		return found != nil
	})
	return found
}

// Keeper returns the pid of the process that has the lock.
func (p *Tool) Keeper() (pid int) {
	p.t.Helper()
	childtest.Eventually(p.t, "a keeper", func() bool {
		pid = ChildOf(p.cmd.Process.Pid)
		return pid != 0
	})
	return pid
}

// Want runs the command, checks its status and the text on both outputs, and returns standard output.
func Want(t *testing.T, env []string, args string, status int, patterns ...string) string {
	t.Helper()
	p := Start(t, env, strings.Fields(args)...)
	p.Exits(status)
	all := p.Stdout.String() + p.Stderr.String()
	for _, pattern := range patterns {
		if !regexp.MustCompile(pattern).MatchString(all) {
			t.Errorf("%s %s: no %q in\n%s", filepath.Base(Program), args, pattern, all)
		}
	}
	if strings.ContainsAny(all, "\x1b\a\u202e") {
		t.Errorf("%s %s: passes on what a terminal obeys: %q", filepath.Base(Program), args, all)
	}
	return p.Stdout.String()
}
