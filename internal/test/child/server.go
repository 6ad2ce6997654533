// Package child runs private servers as child processes, for tests and demos. It contains what the packages of the single servers, such as
// zkserver, have in common.
//
// On Linux the kernel kills a child whenever its parent dies. The package works only on Unix, because tests pause and kill servers.
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

// startTimeout is the limit for a start whose ctx has no deadline of its own.
const startTimeout = 2 * time.Minute

// Program is the program that a Server runs.
type Program interface {
	// Command writes the configuration, and returns the command to run.
	Command() (*exec.Cmd, error)
	// Serves reports whether this child serves requests, and not another program at its address.
	Serves() bool
	// Mode returns "leader" or "follower". If the program also runs single servers in a mode of their own, it returns "standalone" for them.
	// It returns an error if the server does not serve requests.
	Mode() (string, error)
	// Version returns the server's release, such as "3.8.0". It returns an error if the server does not serve requests.
	Version() (string, error)
}

// Kind describes the servers of one program.
type Kind struct {
	Package string // the package that is named in errors, such as "zkserver"
	Taken   string // the text in the server's log if its address is in use
	// Clear removes what a killed server leaves outside its directory dir. Clear is nil if the server leaves nothing there.
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

// New returns a server that [Start] can start. From then on, the server owns dir, even if it is never started.
func New(kind Kind, dir, addr string, program Program) *Server {
	return &Server{Program: program, kind: kind, dir: dir, addr: addr}
}

// Addr returns the host:port of the server. It stays the same after a restart.
func (s *Server) Addr() string { return s.addr }

// Dir returns the directory with all data of the server.
func (s *Server) Dir() string { return s.dir }

// Pid returns the process id of the newest child.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// Kill ends the server as kill -9 would, and returns when it is gone. The server's data stays, so that Restart can use it.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.kill()
	}
}

// Restart kills the server if it runs. Then it starts the server again with the same address and the same data.
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

// Resume lets a paused server continue.
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

// The method launch starts the child. It does not wait until the child serves requests.
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

// The method await waits until the child serves requests.
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
