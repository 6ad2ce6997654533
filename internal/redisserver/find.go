package redisserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotFound means that this machine has no Redis; the text says how to get one.
var ErrNotFound = errors.New(`redisserver: no Redis on this machine; one of these gets you one:
  scripts/get-redis.sh, or make redis-server
  apt-get install -y redis-server
  brew install redis
  set $REDIS_SERVER to the program`)

// find looks for a redis-server: $REDIS_SERVER and nowhere else if that is set, otherwise
// one on $PATH, otherwise what scripts/get-redis.sh got.
func find() (string, error) {
	if named := os.Getenv("REDIS_SERVER"); named != "" {
		redis, err := lookPath(named)
		if err != nil {
			return "", fmt.Errorf("%w\n($REDIS_SERVER: %w)", ErrNotFound, err)
		}
		return redis, nil
	}
	for _, name := range []string{"redis-server", "valkey-server", filepath.Join(cache(), "redis", "redis-server")} {
		if redis, err := lookPath(name); err == nil {
			return redis, nil
		}
	}
	return "", ErrNotFound
}

// lookPath is absolute: a server runs in another directory.
func lookPath(name string) (string, error) {
	redis, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(redis)
}

// cache is the directory where our scripts keep what they get, also on macOS.
func cache() string {
	root := os.Getenv("XDG_CACHE_HOME")
	if root == "" {
		root = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(root, "tierlock")
}
