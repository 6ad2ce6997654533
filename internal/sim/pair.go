package sim

import (
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// bridges reports whether a process of this name is bridged.
func (p Plan) bridges(name string) bool {
	return p.Bridged && mix(p.Seed, uint64(len(name)), uint64(name[len(name)-1]), 2)%2 == 0
}

// A bridged process has a second znode for each node, which has to come and go with the first one.

func (b *book) secondCreated(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	if n == nil {
		b.diary.violate("bridge", "%s was created without its first znode", c.Path)
		return
	}
	if first, _ := parseZnode(n.path); !first.pairs(z) {
		b.diary.violate("bridge", "%s was created for %s", c.Path, n.path)
	}
	n.second = c.Path
}

func (b *book) secondDeleted(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	if n == nil { // which was said at its creation
		return
	}
	by := b.sessions[c.Session]
	b.diary.note("server: second znode of %s deleted by %v", short(n.path), by)
	n.halved = true
	if by == operator || b.ended[c.Session] {
		n.revoked = time.Now()
	} else if by != n.owner {
		b.diary.violate("I12", "%s of %v was deleted by %v", n.second, n.owner, by)
	}
	for t := range b.tenures {
		if t.node == n && n.revoked.IsZero() && !closed(t.hold.Lost()) {
			b.diary.violate("I7", "kazoo may have the lock of %v, whose %s is gone (by %v)", t.job, n.second, by)
		}
	}
}

// checkPair is called when the first znode of n was created, the whole transaction being done.
func (b *book) checkPair(n *node) {
	if n.owner != nil && n.owner.bridged != (n.second != "") {
		b.diary.violate("bridge", "%v, bridged %t, has the second znode %q", n.owner, n.owner.bridged, n.second)
	}
}
