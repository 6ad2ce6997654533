package zkinspect

import (
	"regexp"

	"github.com/tierlock/tierlock/internal/zkqueue"
)

// The kinds of contenders that only the unique part of a name tells from others of their marker.
const (
	kindTierlock      zkqueue.Kind = "tierlock"       // package zklock
	kindTierlockWrite zkqueue.Kind = "tierlock-write" // zklock, the writer of a reader/writer lock
	kindTierlockRead  zkqueue.Kind = "tierlock-read"  // zklock, a reader
	kindZKLock        zkqueue.Kind = "zk.Lock"        // go-zookeeper's
	kindCurator       zkqueue.Kind = "curator"        // Curator's InterProcessMutex
)

// makers are the libraries that share markers, by the form of the unique part of the
// name: a uuid of version 8 is ours, one of version 4 that of Java's UUID.randomUUID,
// and go-zookeeper writes sixteen bytes without dashes.
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

// kindOf tells whose a contender is, by its name. Of a library that is not known here, or that has its markers for itself,
// it is the kind that the marker alone tells.
func kindOf(c zkqueue.Contender) zkqueue.Kind {
	for _, m := range makers {
		if m.form.MatchString(c.Node) {
			return m.kind
		}
	}
	return c.Kind
}
