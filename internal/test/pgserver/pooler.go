package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// ErrNoPooler means that this machine has no PgBouncer; the text says how to install it.
const ErrNoPooler = child.Missing(`pgserver: no PgBouncer on this machine; one of these gets you one:
  scripts/get-pgbouncer.sh, or make postgresql-server
  apt-get install -y pgbouncer
  brew install pgbouncer`)

// StartPooler starts a PgBouncer in front of the server at addr, and returns once it serves requests. The parameter mode is session,
// transaction or statement. The settings are further lines of PgBouncer's configuration. Clients connect to PgBouncer as they would to the
// server.
func StartPooler(ctx context.Context, addr, mode string, settings ...string) (*Server, error) {
	path, err := findPooler()
	if err != nil {
		return nil, err
	}
	o, err := servant()
	if err != nil {
		return nil, err
	}
	e, err := child.Start(ctx, func() (*child.Ensemble, error) {
		dir, own, err := child.Place("pgbouncer", 0)
		if err != nil {
			return nil, err
		}
		p := &pooler{owner: o, path: path, dir: dir, addr: own, server: addr, mode: mode, settings: settings}
		return &child.Ensemble{Members: []*Server{child.New(poolers, dir, own, p)}}, nil
	})
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}

var poolers = child.Kind{Package: "pgserver", Taken: "Address already in use"}

// findPooler looks for a PgBouncer on $PATH, and in the directory into which Debian installs it. Otherwise it takes the one that
// scripts/get-pgbouncer.sh has installed.
func findPooler() (string, error) {
	return child.Find("", ErrNoPooler, "pgbouncer", "/usr/sbin/pgbouncer", filepath.Join(cache(), "pgbouncer", "pgbouncer"))
}

// A pooler is a PgBouncer with its configuration.
type pooler struct {
	owner        owner
	path, dir    string
	addr, server string
	mode         string
	settings     []string
}

func (p *pooler) Command() (*exec.Cmd, error) {
	host, port, err1 := net.SplitHostPort(p.server)
	ownHost, ownPort, err2 := net.SplitHostPort(p.addr)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	users, conf := filepath.Join(p.dir, "users"), filepath.Join(p.dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
pidfile = %s
auth_type = trust
auth_file = %s
pool_mode = %s
%s
`, host, port, ownHost, ownPort, p.pidFile(), users, p.mode, strings.Join(p.settings, "\n"))
	err := errors.Join(
		os.WriteFile(users, []byte(fmt.Sprintf("%q \"\"\n%q \"\"\n", superuser, plain)), 0o600),
		os.WriteFile(conf, []byte(text), 0o600),
		p.owner.gets(p.dir))
	if err != nil {
		return nil, err
	}
	cmd := p.owner.runs(exec.Command(p.path, conf))
	cmd.Dir = p.dir
	return cmd, nil
}

func (p *pooler) pidFile() string { return filepath.Join(p.dir, "pid") }

// Serves returns true once the program has written its pid. The program writes it after it has begun to listen.
func (p *pooler) Serves() bool {
	if text, err := os.ReadFile(p.pidFile()); err != nil || len(text) == 0 {
		return false
	}
	conn, err := net.DialTimeout("tcp", p.addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// Mode is "standalone".
func (p *pooler) Mode() (string, error) { return "standalone", nil }

// Version returns the release that the program prints.
func (p *pooler) Version() (string, error) {
	out, err := exec.Command(p.path, "--version").Output()
	version, _, _ := strings.Cut(strings.TrimPrefix(string(out), "PgBouncer "), "\n")
	return version, err
}
