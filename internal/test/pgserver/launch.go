package pgserver

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tierlock/tierlock/internal/test/child"
)

// A program is the PostgreSQL of one server, with its configuration.
type program struct {
	*cluster
	dir    string
	addr   string
	id     int // place in the ensemble, counted from 1
	server *child.Server
}

func (p *program) data() string { return filepath.Join(p.dir, "data") }

// Command writes the configuration, and returns the command that runs the server. A primary that was replaced becomes a standby with the
// data of the new primary.
func (p *program) Command() (*exec.Cmd, error) {
	if err := p.prepare(); err != nil {
		return nil, err
	}
	if err := p.configure(); err != nil {
		return nil, err
	}
	postgres := p.owner.runs(p.run("postgres", "-D", p.data()))
	postgres.Dir = p.dir
	return postgres, nil
}

// The method prepare creates the data if necessary. It also writes whether this server is a standby.
func (p *program) prepare() error {
	_, err := os.Stat(p.data())
	if os.IsNotExist(err) {
		if err := copyTo(p.data(), p.template, p.owner); err != nil {
			return err
		}
		return p.stand()
	}
	_, err = os.Stat(p.standby())
	if err != nil && p.id != p.primary.id {
		return p.follow()
	}
	return nil
}

// The method standby returns the path of the file that makes a server a standby.
func (p *program) standby() string { return filepath.Join(p.data(), "standby.signal") }

func (p *program) stand() error {
	if p.id == p.primary.id {
		return nil
	}
	if err := os.WriteFile(p.standby(), nil, 0o600); err != nil {
		return err
	}
	return p.owner.gets(p.standby())
}

// The method follow replaces the server's data with the data of the primary.
func (p *program) follow() error {
	if err := os.RemoveAll(p.data()); err != nil {
		return err
	}
	backup := p.owner.runs(p.run("pg_basebackup", "--no-sync", "--checkpoint=fast", "--pgdata="+p.data(),
		"--dbname="+url(superuser, []string{p.primary.addr})))
	backup.Dir = p.dir
	if out, err := backup.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	return p.stand()
}

func (p *program) configure() error {
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return err
	}
	lines := []string{
		"listen_addresses = '127.0.0.1'",
		"port = " + port,
		"unix_socket_directories = '" + p.dir + "'",
		"max_connections = 300",
		"shared_buffers = '16MB'",
		"jit = off",
		// A killed server must not leave shared memory behind.
		"dynamic_shared_memory_type = mmap",
		"wal_keep_size = '512MB'",
		"wal_retrieve_retry_interval = '100ms'",
	}
	if p.cfg.NoSync {
		lines = append(lines, "fsync = off", "full_page_writes = off")
	}
	if p.cfg.Synchronous {
		lines = append(lines, "synchronous_standby_names = 'ANY 1 (*)'")
	}
	if p.id != p.primary.id {
		lines = append(lines, fmt.Sprintf("primary_conninfo = 'host=%s port=%d user=%s application_name=member%d'",
			p.dir, p.primary.id, superuser, p.id))
	}
	lines = append(lines, p.cfg.Settings...)
	conf := filepath.Join(p.data(), "postgresql.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return p.owner.gets(conf)
}

// A member has sockets in its own directory. It listens on one of them, whose name standbys also expect. For each other member there is one
// further socket, which leads to the network.
func (p *program) ownSocket() string {
	_, port, _ := net.SplitHostPort(p.addr)
	return filepath.Join(p.dir, ".s.PGSQL."+port)
}

func (p *program) socketTo(id int) string { return filepath.Join(p.dir, ".s.PGSQL."+strconv.Itoa(id)) }

// removeSegment removes a segment of shared memory that a killed server has left. With such a segment, servers on the same data detect one
// another. A file that the killed server has also left identifies the segment.
func removeSegment(dir string) error {
	pidFile, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return nil // the server ended before it created a segment
	}
	lines := strings.Split(string(pidFile), "\n")
	if len(lines) < 7 {
		return nil
	}
	if fields := strings.Fields(lines[6]); len(fields) == 2 {
		_ = exec.Command("ipcrm", "-m", fields[1]).Run() // ipcrm fails if the segment does not exist any more
	}
	return nil
}
