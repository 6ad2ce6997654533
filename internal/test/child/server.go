// Package child runs private servers as child processes, for tests and demos. It is the common part of zkserver, etcdserver, redisserver
// and pgserver.
//
// On Linux the kernel kills a child whenever its parent dies. Unix only, since tests pause and kill servers.
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
const startTimeout = 2 * time.Minute

// Program is the program that a Server runs.
type Program interface {
	// Command writes the configuration and returns what to run.
	Command() (*exec.Cmd, error)
	// Serves reports whether this child serves requests, and not another program at its address.
	Serves() bool
	// Mode returns "leader" or "follower", or "standalone" if the program distinguishes that; an error if the server does not serve
	// requests.
	Mode() (string, error)
	// Version returns the server's release, such as "3.8.0"; an error if it does not serve requests.
	Version() (string, error)
}

// Kind describes the servers of one program.
type Kind struct {
	Package string // whose errors theirs are, such as "zkserver"
	Taken   string // what a log says if the address is in use
	// Clear removes what a killed server leaves outside of its directory dir. Clear is nil if the server leaves nothing.
	Clear func(dir string) error
}

// Server is a server in a child process, with a directory of its own. Only Addr and Pid are safe for concurrent use.
type Server struct {
	Program
	kind    Kind
	dir     string
	addr    string
	process *process // nil before the first launch
}

// New describes a server that [Start] is to start. New owns dir from now on, also if it is never started.
func New(kind Kind, dir, addr string, program Program) *Server {
	return &Server{Program: program, kind: kind, dir: dir, addr: addr}
}

// Addr returns the server's host:port, which a restart keeps.
func (s *Server) Addr() string { return s.addr }

// Dir returns the directory with all data of the server.
func (s *Server) Dir() string { return s.dir }

// Pid returns the process id of the newest child.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// Kill ends the server as kill -9 would and returns when it is gone. Its data stays, for Restart.
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
		err := start(ctx, s)
		if err == nil {
			return nil
		}
		s.Kill()
		if !errors.Is(err, syscall.EADDRINUSE) || ctx.Err() != nil {
			return err
		}
	}
}

// Pause freezes the server with SIGSTOP: its connections stay open, but it does not answer.
func (s *Server) Pause() error { return s.process.pause() }

// Resume continues a paused server.
func (s *Server) Resume() error { return s.process.resume() }

// Stop kills the server and removes its directory.
func (s *Server) Stop() error {
	s.Kill()
	var err error
	if s.kind.Clear != nil && s.process != nil {
		err = s.kind.Clear(s.dir)
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// launch starts the child; it does not wait until the child serves.
func (s *Server) launch() error {
	cmd, err := s.Command()
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

// await returns once the child serves requests.
func (s *Server) await(ctx context.Context) error {
	gone := false
	err := Until(ctx, func() bool {
		select {
		case <-s.process.done:
			gone = true
			return true
		default:
			return s.Serves()
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
