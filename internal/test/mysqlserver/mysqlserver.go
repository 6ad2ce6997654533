// Package mysqlserver runs private, real MariaDB or MySQL servers as child processes, for tests and demos.
//
// A server listens for clients on the loopback, on a free port. It keeps its data in a temporary directory, and ends with its Stop. If its
// parent dies without calling Stop, Linux kills the server. The package works only on Unix.
package mysqlserver

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

// ErrNotFound means that this machine has no MariaDB; the text says how to get one.
const ErrNotFound = child.Missing(`mysqlserver: no MariaDB on this machine; one of these gets you one:
  scripts/get-mariadb.sh, or make mariadb-server
  apt-get install -y mariadb-server
  set $MARIADB_HOME to the directory that has usr/sbin/mariadbd, or usr/sbin/mysqld of MySQL`)

// Config says how a server runs. The zero value is a server that loses nothing.
type Config struct {
	// Port is the port for clients; zero picks a free one.
	Port int
	// NoSync acknowledges writes before they are on the disk. A kill -9 does not lose writes that the kernel has received. Never set NoSync
	// where speed is measured.
	NoSync bool
	// Settings are further options of mariadbd, such as "--max-connections=20".
	Settings []string
}

// Server is one MariaDB or MySQL. Only Addr and Pid are safe for concurrent use.
type Server = child.Server

// The user plain owns the database of the same name, and has no other right.
const plain = "plain"

// DSN returns the data source name with which go-sql-driver/mysql connects to a server. Its user owns one database and has no other
// privilege.
func DSN(addr string) string { return plain + "@tcp(" + addr + ")/" + plain }

// URL returns the URL that the command tierlock takes, for the same user as in DSN.
func URL(addr string) string { return "mysql://" + plain + "@" + addr + "/" + plain }

// RootDSN returns the data source name for the user root, who may do anything.
func RootDSN(addr string) string { return "root@tcp(" + addr + ")/" + plain }

var kind = child.Kind{Package: "mysqlserver", Taken: "Address already in use"}

// Start starts a server, and returns once it serves requests. The end of ctx ends the attempt, not the server. The error is [ErrNotFound]
// if this machine has no MariaDB; otherwise it ends with the server's last output.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	home, err := find()
	if err != nil {
		return nil, err
	}
	e, err := child.Start(ctx, func() (*child.Ensemble, error) {
		dir, addr, err := child.Place("mariadb", cfg.Port)
		if err != nil {
			return nil, err
		}
		p := &program{installation: home, cfg: cfg, dir: dir, addr: addr}
		return &child.Ensemble{Members: []*Server{child.New(kind, dir, addr, p)}}, nil
	})
	if err != nil {
		return nil, err
	}
	return e.Members[0], nil
}

// An installation is a MariaDB or a MySQL on this machine.
type installation struct {
	home    string // directory that contains usr
	library string // directory of its libraries; "" if the system finds them
	mysql   bool
	version string // version that the program reports
}

// IsMySQL reports whether the servers are MySQL servers. Otherwise they are MariaDB servers.
func IsMySQL() bool {
	i, err := find()
	return err == nil && i.mysql
}

// The function find looks for a MariaDB or MySQL. If $MARIADB_HOME is set, it takes only the installation there. Otherwise it takes
// Debian's, or else the one that scripts/get-mariadb.sh has installed.
func find() (*installation, error) {
	if named := os.Getenv("MARIADB_HOME"); named != "" {
		i, err := look(named)
		if err != nil {
			return nil, fmt.Errorf("%w\n($MARIADB_HOME: %w)", ErrNotFound, err)
		}
		return i, nil
	}
	for _, home := range []string{"/", child.Cached("mariadb"), "/var/cache/tierlock/mariadb"} {
		if i, err := look(home); err == nil {
			return i, nil
		}
	}
	return nil, ErrNotFound
}

func look(home string) (*installation, error) {
	i := &installation{home: home}
	if libraries, _ := filepath.Glob(filepath.Join(home, "usr/lib/*-linux-gnu*")); home != "/" {
		i.library = strings.Join(libraries, ":")
	}
	version, err := i.run(context.Background(), i.server(), "--version").Output()
	if err != nil {
		i.mysql = true
		if version, err = i.run(context.Background(), i.server(), "--version").Output(); err != nil {
			return nil, err
		}
	}
	i.version = strings.TrimSpace(string(version))
	return i, nil
}

func (i *installation) server() string {
	if i.mysql {
		return "sbin/mysqld"
	}
	return "sbin/mariadbd"
}

func (i *installation) client() string {
	if i.mysql {
		return "bin/mysql"
	}
	return "bin/mariadb"
}

// The method messages returns the directory that contains the texts of the server's errors.
func (i *installation) messages() string {
	found, _ := filepath.Glob(filepath.Join(i.home, "usr/share/mysql*/english/errmsg.sys"))
	if len(found) == 0 {
		return filepath.Join(i.home, "usr/share/mysql")
	}
	return filepath.Dir(filepath.Dir(found[0]))
}

func (i *installation) run(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(i.home, "usr", program), args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	if i.library != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+i.library)
	}
	return cmd
}

// A program is the MariaDB or MySQL of one server, with its configuration.
type program struct {
	*installation
	cfg       Config
	dir, addr string
}

func (p *program) socket() string { return filepath.Join(p.dir, "socket") }

// Command creates the data if there is none yet, and returns the command that runs the server.
func (p *program) Command() (*exec.Cmd, error) {
	data := filepath.Join(p.dir, "data")
	if _, err := os.Stat(data); os.IsNotExist(err) {
		template, err := p.template()
		if err == nil {
			err = os.CopyFS(data, os.DirFS(template))
		}
		if err != nil {
			return nil, err
		}
	}
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--no-defaults", "--user=root", "--datadir=" + data, "--basedir=" + filepath.Join(p.home, "usr"), "--socket=" + p.socket(),
		"--bind-address=127.0.0.1", "--port=" + port, "--pid-file=" + filepath.Join(p.dir, "pid"),
		"--lc-messages-dir=" + p.messages(), "--max-connections=300", "--innodb-buffer-pool-size=32M", "--skip-name-resolve",
		"--sync-binlog=1", "--init-file=" + filepath.Join(p.dir, "init.sql"),
	}
	if p.mysql {
		args = append(args, "--mysqlx=OFF", "--secure-file-priv=NULL", smallLog)
	} else {
		args = append(args, "--plugin-dir="+filepath.Join(p.home, "usr/lib/mysql/plugin"), "--performance-schema=off",
			"--innodb-log-file-size=16M")
	}
	if p.cfg.NoSync {
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0")
	}
	const users = "CREATE DATABASE IF NOT EXISTS " + plain + ";\nCREATE USER IF NOT EXISTS " + plain + "@'%';\n" +
		"GRANT ALL ON " + plain + ".* TO " + plain + "@'%';\nCREATE USER IF NOT EXISTS root@'127.0.0.1';\n" +
		"GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
	if err := os.WriteFile(filepath.Join(p.dir, "init.sql"), []byte(users), 0o600); err != nil {
		return nil, err
	}
	cmd := p.run(context.Background(), p.server(), append(args, p.cfg.Settings...)...)
	cmd.Dir = p.dir
	return cmd, nil
}

// smallLog makes MySQL begin with a log of the least size that it accepts.
const smallLog = "--innodb-redo-log-capacity=8M"

// The method template returns a data directory that no server has used yet. It takes seconds to create such a directory, so the directory
// is kept for later servers.
func (p *program) template() (string, error) {
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune("/ ()", r) {
			return '-'
		}
		return r
	}, p.version)
	target := child.Cached("data-of-" + name[max(0, len(name)-60):])
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(target), "mariadb-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	made := filepath.Join(work, "data")
	args := []string{"--no-defaults", "--user=root", "--basedir=" + filepath.Join(p.home, "usr"), "--datadir=" + made}
	install := "bin/mariadb-install-db"
	if p.mysql {
		install, args = p.server(), append(args, "--initialize-insecure", "--lc-messages-dir="+p.messages(), smallLog)
	} else {
		args = append(args, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M")
	}
	if out, err := p.run(context.Background(), install, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", install, err, out)
	}
	err = os.Rename(made, target)
	if _, statErr := os.Stat(target); statErr == nil {
		return target, nil // another process may have created it first
	}
	return "", err
}

// Serves reports whether the server answers on its own socket. Another program on the same port does not pass.
func (p *program) Serves() bool {
	_, err := p.ask("SELECT 1")
	return err == nil
}

// Mode returns "leader". It returns an error if the server does not answer.
func (p *program) Mode() (string, error) {
	_, err := p.ask("SELECT 1")
	return "leader", err
}

// Version returns the server's release, such as "10.11.18". It returns an error if the server does not answer.
func (p *program) Version() (string, error) {
	version, err := p.ask("SELECT VERSION()")
	version, _, _ = strings.Cut(version, "-")
	return version, err
}

// The method ask runs a query that returns one value. It has a time limit, because a paused server accepts the query and never answers.
func (p *program) ask(query string) (string, error) {
	if _, err := os.Stat(p.socket()); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	client := p.run(ctx, p.client(), "--no-defaults", "-uroot", "--socket="+p.socket(), "--batch",
		"--skip-column-names", "--execute="+query)
	var said strings.Builder
	client.Stderr = &said
	out, err := client.Output()
	if err != nil {
		err = errors.Join(fmt.Errorf("mysqlserver: %s: %q: %w", p.addr, query, err), errors.New(said.String()))
	}
	return strings.TrimSpace(string(out)), err
}
