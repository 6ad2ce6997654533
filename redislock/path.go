package redislock

import (
	"errors"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// ValidatePath reports whether path may name a lock: not empty, valid UTF-8 without control characters, at most 1024 bytes, no
// braces but those of one hash tag, which is not all of it, and none of the keys that this package keeps itself. It is the key
// of the lock in Redis.
func ValidatePath(path string) error { return second.CheckPath("redislock", path, checkKey) }

// checkKey reports a path of a lock whose keys would be those of something else.
func checkKey(path string) error {
	switch {
	case strings.ContainsAny(path, "{}") && !hasTag(path):
		return errors.New("braces that are no hash tag")
	case strings.HasPrefix(path, records):
		return errors.New("a key in which this package keeps what it knows of primaries")
	case strings.HasSuffix(path, ofPermits) || slices.ContainsFunc(ownKeys, func(key string) bool { return strings.HasSuffix(path, key) }):
		return errors.New("a key in which this package keeps the state of another lock")
	case path[0] == '{' && path[len(path)-1] == '}':
		return errors.New("nothing but a hash tag, which would have the queue of the lock without the braces")
	}
	return nil
}

// hasTag reports whether a key has a hash tag, and no braces besides.
func hasTag(key string) bool {
	return strings.Count(key, "{") == 1 && strings.Count(key, "}") == 1 && strings.Index(key, "{")+1 < strings.Index(key, "}")
}

// keysOf are the keys of the script for the lock at path, which in a cluster are all in one slot.
func keysOf(path string) []string {
	tag := tagged(path)
	return []string{path, tag + ownKeys[0], tag + ownKeys[1], tag + ownKeys[2]}
}

// at is where the queue of a contender is: for permits at a path where no lock can be.
func at(c queue.Ref) string {
	if c.Permits > 0 {
		return tagged(c.Path) + ofPermits
	}
	return c.Path
}

// tagged is the beginning of a key that is in the slot of a path.
func tagged(path string) string {
	if hasTag(path) {
		return path
	}
	return "{" + path + "}"
}

// ownKeys are the ends of the keys beside that of a lock.
var ownKeys = []string{":tierlock:queue", ":tierlock:leases", ":tierlock:state"}

const ofPermits = ":tierlock:permits"
