package zklock

import "regexp"

// A Kind tells by its name what sort of lock a node belongs to.
type Kind string

// The kinds of contenders that share a path.
const (
	KindTierlock  Kind = "tierlock"   // this package
	KindZKLock    Kind = "zk.Lock"    // go-zookeeper's
	KindCurator   Kind = "curator"    // Curator's InterProcessMutex
	KindMutex     Kind = "mutex"      // another library's, by its name like one of these
	KindKazoo     Kind = "kazoo"      // kazoo's Lock and WriteLock
	KindKazooRead Kind = "kazoo-read" // kazoo's ReadLock
	KindWrite     Kind = "write"      // Curator's InterProcessReadWriteLock, write side
	KindRead      Kind = "read"       // Curator's InterProcessReadWriteLock, read side
)

// makers are the libraries that make mutex nodes, by the form of the unique part of the
// name: a uuid of version 8 is ours, one of version 4 that of Java's UUID.randomUUID,
// and go-zookeeper writes sixteen bytes without dashes.
var makers = []struct {
	form *regexp.Regexp
	kind Kind
}{
	{regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-lock-`), KindTierlock},
	{regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-lock-`), KindCurator},
	{regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`), KindZKLock},
}

// makerOf tells which library made a mutex node.
func makerOf(name string) Kind {
	for _, m := range makers {
		if m.form.MatchString(name) {
			return m.kind
		}
	}
	return KindMutex
}
