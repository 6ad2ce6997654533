// Package zkserver runs private, real ZooKeeper servers as child processes, for tests
// and demos.
//
// A server listens on the loopback, if not told otherwise, on a port nobody else uses,
// keeps its data in a temporary directory, and ends with [Server.Stop]; on Linux the
// kernel also kills it when its parent dies in any other way. Unix only: pausing and
// killing servers is half of what they are here for.
package zkserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds a start whose ctx has no deadline of its own.
const startTimeout = 30 * time.Second

// pollEvery is the interval at which a starting server is asked whether it serves yet.
const pollEvery = 20 * time.Millisecond

// Config says how a server runs. The zero value is a fast server for tests.
type Config struct {
	// TickTime is ZooKeeper's unit of time, 200 ms if zero. Sessions last at least two
	// ticks, and, whatever the tick, at most one minute. Expiry is rounded up by at
	// most one tick. Production uses 2 s.
	TickTime time.Duration
	// NoSync acknowledges writes before they are on the disk. Never set it where speed
	// is measured.
	NoSync bool
	// ContainerCheck is the interval at which empty container nodes are deleted; zero
	// is the server's own, one minute.
	ContainerCheck time.Duration
	// Port is the client port; zero picks a free one.
	Port int
	// Host is the address to listen on, 127.0.0.1 if empty.
	Host string
	// Namespace is the network namespace to run in, by its name for ip-netns(8); empty
	// for the parent's own. Host has to be an address there that the parent can reach.
	Namespace string
}

// Server is one ZooKeeper server. Addr and Pid apart, its methods are not safe for
// concurrent use.
type Server struct {
	cfg      Config
	launcher launcher
	dir      string
	peers    []string // lines "server.N=..." of zoo.cfg; nil when standalone
	id       int      // 1-based place in peers
	process  *process // nil before the first launch
}

// Start starts a standalone server and returns once it serves. The end of ctx ends the
// attempt, not the server. The error is [ErrNotFound] if this machine has no Java or no
// ZooKeeper; otherwise it ends with the server's last words.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	launcher, err := find()
	if err != nil {
		return nil, err
	}
	for {
		s, err := start(ctx, launcher, cfg)
		// Between our look at a free port and the server's bind, somebody else can take
		// it.
		if cfg.Port == 0 && errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
			continue
		}
		return s, err
	}
}

func start(ctx context.Context, launcher launcher, cfg Config) (*Server, error) {
	s, err := newServer(launcher, cfg)
	if err != nil {
		return nil, err
	}
	err = s.launch()
	if err == nil {
		err = s.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func newServer(launcher launcher, cfg Config) (*Server, error) {
	if cfg.TickTime == 0 {
		cfg.TickTime = 200 * time.Millisecond
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Port == 0 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		cfg.Port = port
	}
	dir, err := os.MkdirTemp("", "tierlock-zookeeper-")
	if err != nil {
		return nil, fmt.Errorf("zkserver: %w", err)
	}
	return &Server{cfg: cfg, launcher: launcher, dir: dir}, nil
}

// Addr is the server's host:port; a restart keeps it.
func (s *Server) Addr() string { return net.JoinHostPort(s.cfg.Host, strconv.Itoa(s.cfg.Port)) }

// Pid is the process id of the newest child.
func (s *Server) Pid() int { return s.process.cmd.Process.Pid }

// Kill ends the server as kill -9 would and returns when it is gone. Its data stay, for
// Restart.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.kill()
	}
}

// Restart kills the server if it runs, and starts it again on the same port and data.
func (s *Server) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s.Kill()
	for {
		if err := s.launch(); err != nil {
			return err
		}
		err := s.await(ctx)
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

// Stop kills the server and removes its data.
func (s *Server) Stop() error {
	s.Kill()
	return os.RemoveAll(s.dir)
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }

// await returns once the child serves. EADDRINUSE is in the error when the child could
// not get its port.
func (s *Server) await(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.process.done:
			return s.failure("exited at start", nil)
		case <-ctx.Done():
			return s.failure("does not serve", context.Cause(ctx))
		case <-tick.C:
		}
		// The answer names the data directory, so a stranger on our port is never taken
		// for our child.
		answer, err := Ask(s.Addr(), "conf")
		if err == nil && strings.Contains(answer, "dataDir="+s.dataDir()) {
			return nil
		}
	}
}

func (s *Server) failure(what string, cause error) error {
	log, _ := os.ReadFile(s.logFile())
	if bytes.Contains(log, []byte("java.net.BindException")) {
		cause = errors.Join(cause, syscall.EADDRINUSE)
	}
	const tail = 2048
	log = log[max(0, len(log)-tail):]
	if cause == nil {
		return fmt.Errorf("zkserver: server on %s %s; its log ends:\n%s", s.Addr(), what, log)
	}
	return fmt.Errorf("zkserver: server on %s %s: %w; its log ends:\n%s", s.Addr(), what, cause, log)
}
