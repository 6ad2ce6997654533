package zkinspect

import (
	"regexp"

	"github.com/tierlock/tierlock/internal/zkqueue"
)

// These kinds of contenders share their marker with others. Only the unique part of the name distinguishes them.
const (
	kindTierlock      zkqueue.Kind = "tierlock"       // package zklock
	kindTierlockWrite zkqueue.Kind = "tierlock-write" // zklock, the writer of a reader/writer lock
	kindTierlockRead  zkqueue.Kind = "tierlock-read"  // zklock, a reader
	kindZKLock        zkqueue.Kind = "zk.Lock"        // go-zookeeper's
	kindCurator       zkqueue.Kind = "curator"        // Curator's InterProcessMutex
)

// makers are the libraries that share markers, by the form of the unique part of the name: ours is a uuid of version 8, that of Java's
// UUID.randomUUID has version 4, and go-zookeeper writes sixteen bytes without dashes.
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

// kindOf returns the kind of a contender, by its name. For an unknown library, or one with markers of its own, the kind follows from the
// marker alone.
func kindOf(c zkqueue.Contender) zkqueue.Kind {
	for _, m := range makers {
		if m.form.MatchString(c.Node) {
			return m.kind
		}
	}
	return c.Kind
}
