package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/test/child"
)

// ErrNotFound means that this machine has no PostgreSQL; the text says how to install it.
const ErrNotFound = child.Missing(`pgserver: no PostgreSQL on this machine; one of these gets you one:
  scripts/get-postgresql.sh, or make postgresql-server
  apt-get install -y postgresql
  brew install postgresql
  set $POSTGRESQL_HOME to the directory whose bin has initdb and postgres`)

// An installation is a PostgreSQL on this machine.
type installation struct {
	home    string // directory that contains bin
	library string // directory of its libraries; "" if the system finds them
	version string // version that the program reports
}

// The function find looks for a PostgreSQL. If $POSTGRESQL_HOME is set, it takes only the installation there. Otherwise it takes the newest
// of Debian's, or else the newest that scripts/get-postgresql.sh has installed, or else one on $PATH.
func find() (*installation, error) {
	if named := os.Getenv("POSTGRESQL_HOME"); named != "" {
		found, err := look(named)
		if err != nil {
			return nil, fmt.Errorf("%w\n($POSTGRESQL_HOME: %w)", ErrNotFound, err)
		}
		return found, nil
	}
	homes := slices.Concat(newest("/"), newest(filepath.Join(cache(), "postgresql")))
	if initdb, err := exec.LookPath("initdb"); err == nil {
		homes = append(homes, filepath.Dir(filepath.Dir(initdb)))
	}
	for _, home := range homes {
		if found, err := look(home); err == nil {
			return found, nil
		}
	}
	return nil, ErrNotFound
}

// The function newest lists the directories of Debian's packages below root, newest first. If the packages are installed, root is /.
func newest(root string) []string {
	homes, _ := filepath.Glob(filepath.Join(root, "usr/lib/postgresql/*"))
	// a longer number is a newer version, because versions after 9.6 contain no point
	slices.SortFunc(homes, func(a, b string) int {
		a, b = filepath.Base(a), filepath.Base(b)
		return -cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return homes
}

func look(home string) (*installation, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return nil, err
	}
	i := &installation{home: home}
	if libraries, _ := filepath.Glob(filepath.Join(cache(), "postgresql/usr/lib/*-linux-gnu*")); strings.HasPrefix(home, cache()) {
		i.library = strings.Join(libraries, ":")
	}
	version, err := i.run("postgres", "--version").Output()
	if err != nil {
		return nil, err
	}
	i.version = strings.TrimSpace(string(version))
	return i, i.run("initdb", "--version").Run()
}

func (i *installation) run(program string, args ...string) *exec.Cmd {
	return i.runUntil(context.Background(), program, args...)
}

// runUntil returns a command that runs a program until ctx ends. The command does not inherit the environment, because PostgreSQL takes
// options from it.
func (i *installation) runUntil(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(i.home, "bin", program), args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	if i.library != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+i.library)
	}
	return cmd
}

// The function cache returns the directory where our scripts keep programs, also on macOS. If root owns the directory, it has to be
// readable for the user who runs the server.
func cache() string {
	if os.Geteuid() == 0 {
		return "/var/cache/tierlock"
	}
	return child.Cached()
}
