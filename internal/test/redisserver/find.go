package redisserver

import "github.com/tierlock/tierlock/internal/test/child"

// ErrNotFound means that this machine has no Redis; the text says how to install it.
const ErrNotFound = child.Missing(`redisserver: no Redis on this machine; one of these gets you one:
  scripts/get-redis.sh, or make redis-server
  apt-get install -y redis-server
  brew install redis
  set $REDIS_SERVER to the program`)

// The function find looks for a redis-server. If $REDIS_SERVER is set, it takes only that program. Otherwise it takes one on $PATH, or else
// the one that scripts/get-redis.sh has installed.
func find() (string, error) {
	return child.Find("REDIS_SERVER", ErrNotFound, "redis-server", "valkey-server", child.Cached("redis", "redis-server"))
}
