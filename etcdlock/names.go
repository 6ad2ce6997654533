package etcdlock

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// Names are those that the keys of a session had, and that can be used again. etcd keeps the name
// of a key that was deleted until it compacts its history, and goes through all of them when it
// looks for the first key of a queue: were each name fresh, a lock would become slower with each
// turn.
//
// A name comes back when its key has been deleted, and what else was asked to create or delete it has
// been answered. What may be executed later does no harm to the next key of that name: deletes ask
// for the revision at which theirs was created, and changes for the one at which it was written last.
type names struct {
	mu   sync.Mutex // guards the field below
	free []string   // the last one first, so that few are in use
}

// takeName returns a name that no key has. Once a request was not answered, which may be applied
// at any time, names are fresh: the audit goes by them.
func (x *session) takeName() string {
	if name, ok := x.names.pop(); ok && !x.doubtful.Load() {
		return name
	}
	var id [16]byte
	rand.Read(id[:]) // cannot fail
	return hex.EncodeToString(id[:])
}

func (n *names) push(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, name)
}

func (n *names) pop() (name string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) == 0 {
		return "", false
	}
	name = n.free[len(n.free)-1]
	n.free = n.free[:len(n.free)-1]
	return name, true
}
