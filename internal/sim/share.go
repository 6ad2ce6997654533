package sim

import (
	"slices"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zktest"
)

// A writer's node is shared when a reader's takes its place in one transaction: with the same id and number, so that it stays
// where it was in the queue.

// sharedBy returns the nodes that a transaction shares, by id.
func (b *book) sharedBy(changes []zktest.Change) map[string]*node {
	var shared map[string]*node
	deleted := make(map[string]bool)
	for _, c := range changes {
		z, ok := parseZnode(c.Path)
		switch {
		case !ok || z.forKazoo():
		case c.Op == "delete":
			deleted[z.id] = true
		case c.Op == "create" && deleted[z.id]:
			if shared == nil {
				shared = make(map[string]*node)
			}
			shared[z.id] = b.named[z.id]
		}
	}
	return shared
}

// share notes that the znode z takes the place of the first one of n.
func (b *book) share(n *node, z znodeName, c zktest.Change) {
	b.diary.note("server: %s of %v is shared, czxid %d", short(n.path), n.owner, c.Zxid)
	was, _ := parseZnode(n.path)
	if c.Session != n.session || n.mode != second.Writing || n.shared || modes[z.marker] != second.Reading || z.number != was.number {
		b.diary.violate("share", "%s of session %#x took the place of %s of %#x", c.Path, c.Session, n.path, n.session)
	}
	n.path, n.shared, n.second = c.Path, true, ""
	for t := range b.tenures {
		if t.node == n && !t.reads {
			b.diary.violate("I1", "%s was shared while %v writes", short(n.path), t.job)
		}
	}
	b.checkFollower(n)
}

// checkFollower: whoever is right behind a writer of ours takes its departure for the end of it unless it is watched that a
// reader remains. So the one right behind has to be one that does not care.
func (b *book) checkFollower(n *node) {
	if b.plan.has(Deletion) && b.plan.Bridged { // half a node has a place in the queue, too
		return
	}
	queue := b.queues[n.lock]
	i := slices.Index(queue, n)
	if i+1 >= len(queue) || !queue[i+1].reads() {
		b.diary.violate("share", "%s was shared with no reader right behind", short(n.path))
	}
}
