package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zktest"
)

// A node is a lock node on the server: what one process queues with.
type node struct {
	path    string // of its first znode
	lock    string
	mode    second.Mode
	shared  bool   // it was a writer's, and is a reader's
	second  string // of a bridged process, the path of the znode for kazoo
	halved  bool   // second is gone
	token   int64
	owner   *worker
	session int64
	created time.Time
	ahead   []*node   // those before it at that time
	served  time.Time // when it was granted first
	gone    bool
	revoked time.Time // when it was taken away by a fault that no lease covers, zero if it was not
}

func (n *node) reads() bool { return n.shared || n.mode == second.Reading }

// beside reports whether both may have the lock at the same time.
func (n *node) beside(other *node) bool { return n.reads() && other.reads() }

// A cohort is what queues for one lock in one process, and has one node at most. A mutex and a reader/writer lock of one path
// are two.
type cohort struct {
	worker *worker
	lock   string
	rw     bool
}

func (n *node) cohort() cohort { return cohort{n.owner, n.lock, n.mode != second.Exclusive} }

// changed follows a transaction of the server.
func (b *book) changed(view zktest.View, changes []zktest.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first *node // in the queue for permits; a half of a pair does not count
	if at := slices.IndexFunc(b.queues[permitQueue], func(n *node) bool { return !n.halved }); at >= 0 {
		first = b.queues[permitQueue][at]
	}
	var fresh []*node
	shared := b.sharedBy(changes)
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok && c.Op == "setData" && strings.HasPrefix(c.Path, register("")):
			b.written(view, c)
		case !ok:
			b.diary.note("server: %v %s", c.Op, c.Path)
		case z.marker == permitMarker: // later, all together
		case c.Op == "create" && z.forKazoo():
			b.secondCreated(z, c)
		case c.Op == "create" && shared[z.id] != nil:
			b.share(shared[z.id], z, c)
		case c.Op == "create":
			fresh = append(fresh, b.created(z, c))
		case c.Op == "delete" && shared[z.id] != nil: // what takes its place comes in the same transaction
		case c.Op == "delete" && z.forKazoo():
			b.secondDeleted(z, c)
		case c.Op == "delete":
			b.deleted(z, c)
		}
	}
	for _, n := range fresh {
		b.checkSingle(n)
		b.checkPair(n)
	}
	for _, n := range shared {
		b.checkPair(n)
	}
	if b.plan.Permits > 0 {
		b.permitsChanged(changes, first)
	}
}

func (b *book) created(z znodeName, c zktest.Change) *node {
	n := &node{path: c.Path, lock: z.lock, mode: modes[z.marker], token: c.Zxid, owner: b.sessions[c.Session], session: c.Session,
		created: time.Now()}
	b.diary.note("server: %s of %v created, czxid %d", short(n.path), n.owner, n.token)
	if b.named[z.id] != nil {
		b.diary.violate("I12", "the id of %s was used before: a late delete could hit the wrong node", n.path)
	}
	n.ahead = slices.Clone(b.queues[z.lock])
	b.named[z.id], b.byToken[n.token] = n, n
	b.queues[z.lock] = append(b.queues[z.lock], n)
	return n
}

func (b *book) deleted(z znodeName, c zktest.Change) {
	n := b.named[z.id]
	by := b.sessions[c.Session]
	b.diary.note("server: %s of %v deleted by %v", short(n.path), n.owner, by)
	b.queues[n.lock] = slices.DeleteFunc(b.queues[n.lock], func(o *node) bool { return o == n })
	n.gone = true
	if by == operator || b.ended[c.Session] {
		n.revoked = time.Now()
	} else if by != n.owner {
		b.diary.violate("I12", "%s of %v was deleted by %v", n.path, n.owner, by)
	}
	b.checkPlace(n)
	for t := range b.tenures {
		if t.node == n && n.revoked.IsZero() && !closed(t.hold.Lost()) {
			b.diary.violate("I7", "%s is gone from the server (by %v), and its holder %v does not know", n.path, by, t.job)
		}
	}
}

// checkSingle is called at the creation of n, the whole transaction being done.
func (b *book) checkSingle(n *node) {
	if n.owner == operator || n.owner == nil || n.owner.reaping() > 0 || time.Now().Before(b.calmAt) {
		return
	}
	for _, other := range b.queues[n.lock] {
		if other != n && other.cohort() == n.cohort() {
			b.diary.violate("I3", "%v has %s and %s in the queue, and nothing to clear up", n.owner, short(other.path), short(n.path))
		}
	}
}

// requested follows a request to the server.
func (b *book) requested(f *zktest.Frame) {
	z, ok := parseZnode(f.Path)
	if !ok || f.Op != "delete" && (f.Op != "multi" || f.First != "delete") {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	by, of := b.sessions[f.Session], b.takers[z.id]
	if n := b.named[z.id]; n != nil {
		of = n.owner
	}
	if by != operator && by != of {
		b.diary.violate("I12", "%v asks to delete %s, which it did not create", by, f.Path)
	}
}
