package etcdserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotFound means that this machine has no etcd; the text says how to get one.
var ErrNotFound = errors.New(`etcdserver: no etcd on this machine; one of these gets you one:
  scripts/get-etcd.sh, or make etcd-server
  apt-get install -y etcd-server
  brew install etcd
  set $ETCD to the program`)

// built is the release that scripts/get-etcd.sh builds.
const built = "v3.7.3"

// find looks for an etcd: $ETCD and nowhere else if that is set, otherwise what
// scripts/get-etcd.sh built, otherwise one on $PATH.
func find() (string, error) {
	if named := os.Getenv("ETCD"); named != "" {
		etcd, err := lookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w\n($ETCD: %w)", ErrNotFound, err)
		}
		return etcd, nil
	}
	for _, name := range []string{filepath.Join(cache(), "etcd-"+built), "etcd"} {
		if etcd, err := lookPath(name); err == nil {
			return etcd, nil
		}
	}
	return "", ErrNotFound
}

// lookPath is absolute: a server runs in another directory.
func lookPath(name string) (string, error) {
	etcd, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(etcd)
}

// cache is the directory where our scripts keep what they get, also on macOS.
func cache() string {
	root := os.Getenv("XDG_CACHE_HOME")
	if root == "" {
		root = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(root, "tierlock")
}
