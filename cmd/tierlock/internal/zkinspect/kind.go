package zkinspect

import (
	"regexp"

	"github.com/tierlock/tierlock/internal/zkqueue"
)

// These kinds of contenders share their marker with other kinds. Only the unique part of the name distinguishes them.
const (
	kindTierlock      zkqueue.Kind = "tierlock"       // package zklock
	kindTierlockWrite zkqueue.Kind = "tierlock-write" // zklock, the writer of a reader/writer lock
	kindTierlockRead  zkqueue.Kind = "tierlock-read"  // zklock, a reader
	kindZKLock        zkqueue.Kind = "zk.Lock"        // zk.Lock of go-zookeeper
	kindCurator       zkqueue.Kind = "curator"        // Curator's InterProcessMutex
)

// The table makers has the libraries that share markers. The form of the unique part of the name distinguishes them. The names of tierlock
// have a uuid of version 8, and Java's UUID.randomUUID has version 4. go-zookeeper writes sixteen bytes without dashes.
var makers = []struct {
	form *regexp.Regexp
	kind zkqueue.Kind
}{
	{regexp.MustCompile(zkqueue.Own + "lock-"), kindTierlock},
	{regexp.MustCompile(zkqueue.Own + "__WRIT__"), kindTierlockWrite},
	{regexp.MustCompile(zkqueue.Own + "__READ__"), kindTierlockRead},
	{regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-lock-`), kindCurator},
	{regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`), kindZKLock},
}

// kindOf returns the kind of a contender, from its name. If the library is unknown, or has its own markers, the kind follows only from the
// marker.
func kindOf(c zkqueue.Contender) zkqueue.Kind {
	for _, m := range makers {
		if m.form.MatchString(c.Node) {
			return m.kind
		}
	}
	return c.Kind
}
