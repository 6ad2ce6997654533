package zklock

import "regexp"

// A Kind tells by its name what sort of lock a node belongs to.
type Kind string

// The kinds of contenders that share a path.
const (
	KindTierlock      Kind = "tierlock"       // this package
	KindTierlockWrite Kind = "tierlock-write" // this package, the writer of a reader/writer lock
	KindTierlockRead  Kind = "tierlock-read"  // this package, a reader
	KindZKLock        Kind = "zk.Lock"        // go-zookeeper's
	KindCurator       Kind = "curator"        // Curator's InterProcessMutex
	KindMutex         Kind = "mutex"          // another library's, by its name like one of these
	KindKazoo         Kind = "kazoo"          // kazoo's Lock and WriteLock
	KindKazooRead     Kind = "kazoo-read"     // kazoo's ReadLock
	KindWrite         Kind = "write"          // Curator's InterProcessReadWriteLock, write side
	KindRead          Kind = "read"           // Curator's InterProcessReadWriteLock, read side
)

// Reads reports whether contenders of a kind share the lock with others that read.
func (k Kind) Reads() bool {
	return k == KindTierlockRead || k == KindRead || k == KindKazooRead
}

// own is how the names of our znodes begin, by the version of their uuid.
const own = `^_c_[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-`

var ownName = regexp.MustCompile(own)

// makers are the libraries that share markers, by the form of the unique part of the
// name: a uuid of version 8 is ours, one of version 4 that of Java's UUID.randomUUID,
// and go-zookeeper writes sixteen bytes without dashes.
var makers = []struct {
	form *regexp.Regexp
	kind Kind
}{
	{regexp.MustCompile(own + mutexMarker), KindTierlock},
	{regexp.MustCompile(own + writeMarker), KindTierlockWrite},
	{regexp.MustCompile(own + readMarker), KindTierlockRead},
	{regexp.MustCompile(`^_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-lock-`), KindCurator},
	{regexp.MustCompile(`^_c_[0-9a-f]{32}-lock-`), KindZKLock},
}

// makerOf tells whose a node is, by its name, if its marker alone says that it is of a kind.
func makerOf(name string, marked Kind) Kind {
	for _, m := range makers {
		if m.form.MatchString(name) {
			return m.kind
		}
	}
	return marked
}
