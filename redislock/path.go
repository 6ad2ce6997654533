package redislock

import (
	"errors"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/second"
)

// ValidatePath returns nil if path can name a lock. A lock path is the key of the lock in Redis. The path is not empty, and is at most
// 1024 bytes of UTF-8 without control characters. The path may contain braces only as one hash tag, and must not consist of the hash tag
// alone. The path must not be one of the keys that this package uses itself.
func ValidatePath(path string) error { return second.CheckPath("redislock", path, checkKey) }

// checkKey returns an error for a lock path whose keys would collide with other keys.
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

// hasTag reports whether a key has a hash tag and no other braces.
func hasTag(key string) bool {
	return strings.Count(key, "{") == 1 && strings.Count(key, "}") == 1 && strings.Index(key, "{")+1 < strings.Index(key, "}")
}

// keysOf returns the keys that the script uses for the lock at path. In a cluster they share a slot.
func keysOf(path string) []string {
	tag := tagged(path)
	return []string{path, tag + ownKeys[0], tag + ownKeys[1], tag + ownKeys[2]}
}

// valueOf returns the key of the value beside the lock at path.
func valueOf(path string) string { return tagged(path) + ownKeys[3] }

// at returns the path of a contender's queue. For permits it is a path that no lock can have.
func at(c queue.Ref) string {
	if c.Permits > 0 {
		return tagged(c.Path) + ofPermits
	}
	return c.Path
}

// tagged returns a prefix for keys in the slot of a path.
func tagged(path string) string {
	if hasTag(path) {
		return path
	}
	return "{" + path + "}"
}

// ownKeys are the suffixes of the keys that exist besides that of a lock itself.
var ownKeys = []string{":tierlock:queue", ":tierlock:leases", ":tierlock:state", ":tierlock:value"}

const ofPermits = ":tierlock:permits"
