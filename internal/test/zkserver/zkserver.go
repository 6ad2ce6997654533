// Package zkserver runs private, real ZooKeeper servers as child processes, for tests
// and demos.
//
// By default a server listens on the loopback, on a free port. It keeps its data in a temporary directory, and ends with [Server.Stop]. If
// its parent dies without calling Stop, Linux kills the server. The package works only on Unix, because tests pause and kill servers.
package zkserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Config says how a server runs. The zero value is a fast server for tests.
type Config struct {
	// TickTime is ZooKeeper's unit of time; zero means 200 ms. A session timeout is at least two ticks, and at most one minute whatever the
	// tick is. The server rounds the expiry of a session up by at most one tick. Production uses 2 s.
	TickTime time.Duration
	// NoSync acknowledges writes before they are on the disk. Never set it where speed
	// is measured.
	NoSync bool
	// ContainerCheck is the interval at which empty container nodes are deleted; zero means the server's default, one minute.
	ContainerCheck time.Duration
	// Port is the client port; zero picks a free one.
	Port int
	// Host is the address to listen on; empty means 127.0.0.1.
	Host string
	// Namespace is the name of the network namespace to run in, as in ip-netns(8); empty means the namespace of the parent. The parent has to
	// be able to reach Host in that namespace.
	Namespace string
	// TLS makes the server listen on a second port, for TLS only; see [SecureAddr].
	TLS *TLS
}

// TLS contains the files that a server needs for its secure port, in PEM.
type TLS struct {
	KeyStore   string // the server's private key and certificate
	TrustStore string // the certificates of the authorities that issue client certificates
	ClientAuth string // whether clients have to show a certificate: "need", "want" or "none"; the server's default is "need"
}

// Server is one ZooKeeper server. Only Addr and Pid are safe for concurrent use.
type Server = child.Server

// Start starts a standalone server and returns once it serves requests. The end of ctx ends the attempt, not the server. The error is
// [ErrNotFound] if this machine has no Java or no ZooKeeper; otherwise it ends with the server's last output.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	e, err := StartMembers(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}

// SecureAddr returns the host:port of a server's secure port. If the server has none, it returns "".
func SecureAddr(s *Server) string {
	p := s.Program.(*program)
	if p.cfg.TLS == nil {
		return ""
	}
	return net.JoinHostPort(p.cfg.Host, strconv.Itoa(p.securePort))
}

var kind = child.Kind{Package: "zkserver", Taken: "java.net.BindException"}

// A program is the ZooKeeper of one server, with its configuration.
type program struct {
	cfg        Config
	securePort int // secure port; set if there is to be one
	launcher   launcher
	dir        string
	peers      []string // lines "server.N=..." of zoo.cfg; nil for a standalone server
	id         int      // place in peers, counted from 1
}

func newProgram(launcher launcher, cfg Config) (*program, error) {
	if cfg.TickTime == 0 {
		cfg.TickTime = 200 * time.Millisecond
	}
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	free, err1 := child.FreePort()
	secure, err2 := child.FreePort()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("zkserver: %w", err)
	}
	if cfg.Port == 0 {
		cfg.Port = free
	}
	dir, err := os.MkdirTemp("", "tierlock-zookeeper-")
	if err != nil {
		return nil, fmt.Errorf("zkserver: %w", err)
	}
	return &program{cfg: cfg, securePort: secure, launcher: launcher, dir: dir}, nil
}

func (p *program) addr() string { return net.JoinHostPort(p.cfg.Host, strconv.Itoa(p.cfg.Port)) }

func (p *program) dataDir() string { return filepath.Join(p.dir, "data") }
