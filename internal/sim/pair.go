package sim

import (
	"regexp"
	"strconv"
	"time"

	"github.com/tierlock/tierlock/zktest"
)

// bridges reports whether a process of this name is bridged.
func (p Plan) bridges(name string) bool {
	return p.Bridged && mix(p.Seed, uint64(len(name)), uint64(name[len(name)-1]), 2)%2 == 0
}

// A bridged process has a second znode for each node. kazoo, which sees nothing else, stays out for as long as it is
// there: so it has to come and go with the first one.
var secondZnode = regexp.MustCompile(`/_c_[0-9a-f-]{36}-__lock__\d{10}$`)

func (b *book) secondChanged(c zktest.Change) {
	switch c.Kind {
	case zktest.Created:
		n := b.byToken[c.Zxid]
		if n == nil || sequence(c.Path) != sequence(n.path)+1 {
			b.diary.violate("bridge", "%s was not created right behind its first znode", c.Path)
			return
		}
		n.second, b.seconds[c.Path] = c.Path, n
	case zktest.Deleted:
		if n := b.seconds[c.Path]; n != nil { // else that was said at its creation
			b.secondDeleted(n, b.sessions[c.Session], b.ended[c.Session])
		}
	}
}

func (b *book) secondDeleted(n *node, by *worker, ended bool) {
	b.diary.note("server: second znode of %s deleted by %v", short(n.path), by)
	n.halved = true
	if by == operator || ended {
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

// checkPair is called at the creation of n, the whole transaction being done.
func (b *book) checkPair(n *node) {
	if n.owner != nil && n.owner.bridged != (n.second != "") {
		b.diary.violate("bridge", "%v, bridged %t, has the second znode %q", n.owner, n.owner.bridged, n.second)
	}
}

func sequence(path string) int {
	const digits = 10
	n, _ := strconv.Atoi(path[len(path)-digits:]) // the pattern sees to it
	return n
}
