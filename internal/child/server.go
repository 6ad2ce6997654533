// Package child runs private servers as child processes, for tests and demos: what
// zkserver and etcdserver have in common.
//
// On Linux the kernel kills a child when its parent dies, however it dies. Unix only:
// pausing and killing servers is half of what they are here for.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// startTimeout bounds a start whose ctx has no deadline of its own.
const startTimeout = 30 * time.Second

// Kind is what the servers of one make have in common.
type Kind struct {
	Package string // whose errors theirs are, such as "zkserver"
	Program string // such as "zookeeper", in the name of their directories
	Taken   string // what a log says if the address is in use
}

// Server is a server in a child process, with a temporary directory of its own. Addr and
// Pid apart, its methods are not safe for concurrent use.
type Server struct {
	kind    Kind
	addr    string
	dir     string
	command func() (*exec.Cmd, error)
	serves  func() bool
	process *process // nil before the first launch
}

// New makes the server's directory and does not start it yet. Each start runs what
// command returns, and lasts until serves says that it is this child, not a stranger on
// its address, that serves.
func New(kind Kind, addr string, command func() (*exec.Cmd, error), serves func() bool) (*Server, error) {
	dir, err := os.MkdirTemp("", "tierlock-"+kind.Program+"-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Package, err)
	}
	return &Server{kind: kind, addr: addr, dir: dir, command: command, serves: serves}, nil
}

// Start starts servers that wait for one another, and returns once each of them serves.
// The end of ctx ends the attempt, not the servers. The error ends with the last words
// of the server that failed, and EADDRINUSE is in it if that server could not get its
// address; the servers are stopped then.
func Start(ctx context.Context, servers ...*Server) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := startAll(ctx, servers)
	if err != nil {
		for _, s := range servers {
			err = errors.Join(err, s.Stop())
		}
	}
	return err
}

func startAll(ctx context.Context, servers []*Server) error {
	for _, s := range servers {
		if err := s.launch(); err != nil {
			return err
		}
	}
	for _, s := range servers {
		if err := s.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Addr is the server's host:port; a restart keeps it.
func (s *Server) Addr() string { return s.addr }

// Dir is the server's directory, absolute.
func (s *Server) Dir() string { return s.dir }

// Pid is the process id of the newest child.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// Kill ends the server as kill -9 would and returns when it is gone. Its data stay, for
// Restart.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.kill()
	}
}

// Restart kills the server if it runs, and starts it again on the same address and data.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.Kill()
	for {
		err := startAll(ctx, []*Server{s})
		if err == nil {
			return nil
		}
		s.Kill()
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
			return err
		}
	}
}

// Pause freezes the server with SIGSTOP: its connections stay open and mute.
func (s *Server) Pause() error { return s.process.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume continues a paused server.
func (s *Server) Resume() error { return s.process.cmd.Process.Signal(syscall.SIGCONT) }

// Stop kills the server and removes its directory.
func (s *Server) Stop() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

// launch starts the child; it does not wait until the child serves.
func (s *Server) launch() error {
	cmd, err := s.command()
	if err != nil {
		return fmt.Errorf("%s: %w", s.kind.Package, err)
	}
	log, err := os.Create(s.logFile())
	if err != nil {
		return fmt.Errorf("%s: %w", s.kind.Package, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	process, err := spawn(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", s.kind.Package, err)
	}
	s.process = process
	return nil
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

// await returns once the child serves.
func (s *Server) await(ctx context.Context) error {
	gone := false
	err := Until(ctx, func() bool {
		select {
		case <-s.process.done:
			gone = true
			return true
		default:
			return s.serves()
		}
	})
	switch {
	case gone:
		return s.failure("exited at start", nil)
	case err != nil:
		return s.failure("does not serve", err)
	}
	return nil
}

func (s *Server) failure(what string, cause error) error {
	log, _ := os.ReadFile(s.logFile())
	if bytes.Contains(log, []byte(s.kind.Taken)) {
		cause = errors.Join(cause, syscall.EADDRINUSE)
	}
	const tail = 2048
	log = log[max(0, len(log)-tail):]
	what = fmt.Sprintf("%s: server on %s %s", s.kind.Package, s.addr, what)
	if cause == nil {
		return fmt.Errorf("%s; its log ends:\n%s", what, log)
	}
	return fmt.Errorf("%s: %w; its log ends:\n%s", what, cause, log)
}

// Until asks again and again whether something holds. The error is the cause of the end
// of ctx, if that comes first.
func Until(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
