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
		return errors.New("a key in which this package records the primaries")
	case strings.HasSuffix(path, ofPermits) || slices.ContainsFunc(ownKeys, func(key string) bool { return strings.HasSuffix(path, key) }):
		return errors.New("a key in which this package keeps the state of another lock")
	case path[0] == '{' && path[len(path)-1] == '}':
		return errors.New("only a hash tag: a lock with this path would share its queue with the lock whose path lacks the braces")
	}
	return nil
}

// hasTag reports whether a key has exactly one hash tag, which is a non-empty text in braces, and no other braces.
func hasTag(key string) bool {
	return strings.Count(key, "{") == 1 && strings.Count(key, "}") == 1 && strings.Index(key, "{")+1 < strings.Index(key, "}")
}

// keysOf returns the keys that the script uses for the lock at path. In a cluster, all of them are in one slot.
func keysOf(path string) []string {
	tag := tagged(path)
	return []string{path, tag + ownKeys[0], tag + ownKeys[1], tag + ownKeys[2]}
}

// valueOf returns the key of the value that is saved beside the lock at path.
func valueOf(path string) string { return tagged(path) + ownKeys[3] }

// at(c) returns the path of a contender's queue. The queue for permits has a separate path, which no lock can have.
func at(c queue.Ref) string {
	if c.Permits > 0 {
		return tagged(c.Path) + ofPermits
	}
	return c.Path
}

// tagged returns a prefix for keys. Keys with this prefix are in the same slot as the path.
func tagged(path string) string {
	if hasTag(path) {
		return path
	}
	return "{" + path + "}"
}

// ownKeys has the suffixes of the keys that this package creates for a lock, in addition to the key of the lock itself.
var ownKeys = []string{":tierlock:queue", ":tierlock:leases", ":tierlock:state", ":tierlock:value"}

const ofPermits = ":tierlock:permits"
