package child

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Missing is the error of a start if this machine does not have the program. Its text says how to install the program.
type Missing string

func (m Missing) Error() string { return string(m) }

// Find looks for a program. If the environment variable is set, Find takes only the program that it names. Otherwise Find takes the first
// of names that exists. The path is absolute, because a server runs in another directory.
func Find(variable string, missing Missing, names ...string) (string, error) {
	if named := os.Getenv(variable); named != "" {
		path, err := lookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w\n($%s: %w)", missing, variable, err)
		}
		return path, nil
	}
	for _, name := range names {
		if path, err := lookPath(name); err == nil {
			return path, nil
		}
	}
	return "", missing
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// Cached returns the path at which our scripts store the file name. On macOS it is the same path as on Linux.
func Cached(name ...string) string {
	root := os.Getenv("XDG_CACHE_HOME")
	if root == "" {
		root = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(append([]string{root, "tierlock"}, name...)...)
}

// Place creates a directory for a server. It also returns an address on the loopback with the given port, or with a free port if port is
// zero.
func Place(name string, port int) (dir, addr string, err error) {
	if port == 0 {
		port, err = FreePort()
	}
	if err == nil {
		dir, err = os.MkdirTemp("", "tierlock-"+name+"-")
	}
	if err != nil {
		return "", "", fmt.Errorf("a place for %s: %w", name, err)
	}
	return dir, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}
