//go:build linux || darwin || freebsd || windows

// Package commandtest tests the command in the way that users run it, on any store. It uses the real program, real servers and real
// signals. [Run] is the suite that the command has to pass on each store.
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

// Patience is the longest wait for an event that has to happen, even on a busy machine.
const Patience = 60 * time.Second

// Program is the path of the command, which [Main] builds.
var Program string

// The function shared returns a server for all tests. Each test uses its own paths. The first test that needs the server starts it.
var shared = func() (*child.Server, error) { return nil, nil }

// Server returns the shared server.
func Server(t *testing.T) *child.Server {
	t.Helper()
	server, err := shared()
	childtest.Check(t, err)
	return server
}

// Main is called by TestMain. It builds the command and runs the tests. The function start starts the shared server.
func Main(m *testing.M, start func() (*child.Server, error)) {
	if len(os.Args) > 1 && os.Args[1] == "section" {
		beSection(os.Args[2:])
	}
	flag.Parse()
	flag.Set("test.parallel", "6") // the tests spend nearly all of their time waiting
	shared = sync.OnceValues(start)
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if Program = os.Getenv("TIERLOCK_COMMAND"); Program == "" { // the variable is set on machines without Go
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

// A Tool is a process of the command.
type Tool struct {
	Stdout, Stderr *logtest.Log

	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts the command with additional environment variables. At the end of the test the process is killed.
func Start(t *testing.T, env []string, args ...string) *Tool {
	t.Helper()
	return StartWith(t, env, func(*exec.Cmd) {}, args...)
}

// StartWith is like Start, but calls prepare before the start.
func StartWith(t *testing.T, env []string, prepare func(*exec.Cmd), args ...string) *Tool {
	t.Helper()
	p := &Tool{t: t, cmd: exec.Command(Program, args...), Stdout: new(logtest.Log), Stderr: new(logtest.Log), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.Stdout, p.Stderr
	p.cmd.WaitDelay = time.Second // a process that outlives the command may keep its output open
	prepare(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait() // the process state has the result
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

// Signal sends a signal to the started process.
func (p *Tool) Signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// Status waits for the end of the process, and returns its exit status.
func (p *Tool) Status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(Patience):
		p.t.Fatalf("%v does not end", p.cmd.Args[1:])
	}
	return p.cmd.ProcessState.ExitCode()
}

// Exits waits for the end of the process, and checks its exit status.
func (p *Tool) Exits(want int) {
	p.t.Helper()
	if got := p.Status(); got != want {
		p.t.Errorf("%v: %v, want exit status %d; it says:\n%s", p.cmd.Args[1:], p.cmd.ProcessState, want, p.Stderr)
	}
}

// Says waits until standard error contains want.
func (p *Tool) Says(want string) {
	p.t.Helper()
	childtest.Eventually(p.t, fmt.Sprintf("%q on stderr", want), func() bool { return strings.Contains(p.Stderr.String(), want) })
}

// Prints waits until an output has a line that matches the pattern, and returns the submatches.
func (p *Tool) Prints(o *logtest.Log, pattern string) (found []string) {
	p.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	childtest.Eventually(p.t, fmt.Sprintf("%q in the output", pattern), func() bool {
		found = re.FindStringSubmatch(o.String())
		return found != nil
	})
	return found
}

// Keeper returns the pid of the keeper, the process that holds the lock.
func (p *Tool) Keeper() (pid int) {
	p.t.Helper()
	childtest.Eventually(p.t, "a keeper", func() bool {
		pid = ChildOf(p.cmd.Process.Pid)
		return pid != 0
	})
	return pid
}

// Want runs the command. It checks its exit status and the text on both outputs, and returns standard output.
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
