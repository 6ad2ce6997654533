//go:build unix

// Package witness lets a test run several processes of its own program. Unix only.
package witness

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"
)

// roleVar says in the environment of a process what it is there for.
const roleVar = "TIERLOCK_WITNESS_ROLE"

// Role is what [Start] started this process for; empty in the test itself.
func Role() string { return os.Getenv(roleVar) }

// A Process is another run of the test's own program.
type Process struct {
	*exec.Cmd
	stdin io.Closer
	done  chan struct{}
	err   error
}

// Start runs the program of the test again, with a role and more environment; its TestMain has to look
// at [Role]. At the end of the test it is killed if it is still there, and what it wrote is logged.
func Start(t testing.TB, role string, env ...string) *Process {
	t.Helper()
	p := &Process{Cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	out := new(bytes.Buffer)
	p.Stdout, p.Stderr = out, out
	stdin, err := p.StdinPipe()
	if err == nil {
		err = p.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	go func() {
		p.err = p.Cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		t.Logf("%s, process %d: %s", role, p.Process.Pid, out)
	})
	return p
}

// Kill ends the process as kill -9 does.
func (p *Process) Kill() {
	p.Process.Kill()
	<-p.done
}

// Stop asks the process to end, and returns how it did.
func (p *Process) Stop() error {
	p.stdin.Close()
	return p.Wait()
}

// Wait waits for the end of the process, and returns how it ended.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Stopped returns in a process that [Start] started once the test wants it to end, or has ended itself.
func Stopped() { io.Copy(io.Discard, os.Stdin) }
