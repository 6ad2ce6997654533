//go:build linux || darwin || freebsd

// Package main_test runs the command as its users do: the real program, real servers, real signals.
package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/child/childtest"
	"github.com/tierlock/tierlock/internal/faultproxy"
	"github.com/tierlock/tierlock/internal/zkconn"
	"github.com/tierlock/tierlock/internal/zkserver"
)

// program is the command, built once.
var program string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "section" {
		beSection(os.Args[2:])
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "tierlock-command-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "tierlock")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	defer func() {
		if server, err := shared(); err == nil {
			server.Stop()
		}
	}()
	return m.Run()
}

// shared is a server for all tests, which each use paths of their own.
var shared = sync.OnceValues(func() (*zkserver.Server, error) {
	return zkserver.Start(context.Background(), zkserver.Config{NoSync: true})
})

func startServer(t *testing.T) *zkserver.Server {
	t.Helper()
	server, err := shared()
	childtest.Check(t, err, zkserver.ErrNotFound)
	return server
}

// patience is for what has to happen, on a machine that has other things to do.
const patience = 60 * time.Second

// A tool is a running tierlock.
type tool struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr *output
	ended          chan struct{}
}

// An output is what a process has printed until now.
type output struct {
	mu   sync.Mutex // guards the text
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts tierlock with args, on servers.
func start(t *testing.T, servers string, args ...string) *tool {
	t.Helper()
	return startWith(t, servers, func(*exec.Cmd) {}, args...)
}

func startWith(t *testing.T, servers string, prepare func(*exec.Cmd), args ...string) *tool {
	t.Helper()
	p := &tool{t: t, cmd: exec.Command(program, args...), stdout: &output{}, stderr: &output{}, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "TIERLOCK_ZK="+servers)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
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
			t.Logf("tierlock %s said:\n%s", strings.Join(args, " "), p.stderr)
		}
	})
	return p
}

func (p *tool) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// exits checks the status.
func (p *tool) exits(want int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%v does not end", p.cmd.Args[1:])
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		p.t.Errorf("%v: %v, want exit status %d; it says:\n%s", p.cmd.Args[1:], p.cmd.ProcessState, want, p.stderr)
	}
}

// says waits until stderr has want.
func (p *tool) says(want string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q on stderr", want), func() bool { return strings.Contains(p.stderr.String(), want) })
}

// keeper returns the process that has the lock.
func (p *tool) keeper() int {
	p.t.Helper()
	var pid int
	eventually(p.t, "a keeper", func() bool {
		out, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid))
		for _, field := range strings.Fields(string(out)) {
			fmt.Sscan(field, &pid)
		}
		if pid == 0 { // started by another thread
			out, _ = exec.Command("pgrep", "-P", fmt.Sprint(p.cmd.Process.Pid)).Output()
			fmt.Sscan(string(out), &pid)
		}
		return pid != 0
	})
	return pid
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("there is not: %s", what)
		}
	}
}

// proxyTo returns a proxy that leads to the server.
func proxyTo(t *testing.T, server *zkserver.Server) *faultproxy.Proxy {
	t.Helper()
	proxy, err := faultproxy.Start(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// operate returns a plain connection to the server, such as operators have.
func operate(t *testing.T, server *zkserver.Server) *zk.Conn {
	t.Helper()
	return zkconn.Start(t, []string{server.Addr(), server.Addr()}, 10*time.Second, nil)
}

// queue returns the children of the lock path.
func queue(t *testing.T, conn *zk.Conn, path string) []string {
	t.Helper()
	children, _, err := conn.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return children
}
