package zkinspect

import (
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

func (r examination) examineContender(i int) {
	c := &r.Contenders[i]
	kind := zkqueue.Kind(c.Kind)
	r.FindRole(c)
	switch {
	case !c.Readable:
		r.Find(inspect.Warning, c.Node, "cannot be read with these credentials: its owner and session are unknown")
	case !c.Ephemeral && i == 0:
		r.Find(inspect.Problem, c.Node, "belongs to no session: it stays and blocks all entries behind it; if no process owns it, "+
			"tierlock break %s -token %d", r.Path, c.Token)
	case !c.Ephemeral:
		r.Find(inspect.Problem, c.Node, "belongs to no session: it stays and will block all entries behind it; if no process owns it, delete it")
	}
	switch {
	case c.Sequence < 0:
		r.Find(inspect.Problem, c.Node, "has a negative number, so no tierlock process can queue; delete this node if no process owns it")
	case c.Sequence > zkqueue.LastSequence:
		r.Find(inspect.Problem, c.Node, "has a number above %d, the highest number that is used", zkqueue.LastSequence)
	case i > 0 && c.Sequence == r.Contenders[i-1].Sequence:
		r.Find(inspect.Problem, c.Node, "has the same number as %s: both processes may get the lock at the same time", r.Contenders[i-1].Node)
	}
	if (kind == zkqueue.KindKazoo || kind == zkqueue.KindKazooRead) && strings.HasPrefix(c.Node, "_c_") {
		r.Find(inspect.Warning, c.Node, "belongs to a pair of nodes whose other node was deleted: its process has lost the lock")
	}
	if ours(kind) && c.Ephemeral {
		for _, other := range r.Contenders[:i] {
			if other.Kind == c.Kind && other.Session == c.Session && other.Label == c.Label {
				r.Find(inspect.Note, c.Node, "its session also made %s: two clients on one connection, or a node about to be deleted", other.Node)
				break
			}
		}
	}
	r.FindWishes(c)
}

func (r examination) examineOther(o inspect.Other) {
	grade, why := inspect.Note, "ignored by tierlock and kazoo"
	for i := range r.Contenders {
		c := &r.Contenders[i]
		kind := zkqueue.Kind(c.Kind)
		switch {
		case kind == kindZKLock && !knownToZKLock(o.Name):
			grade, why = inspect.Problem, "zk.Lock fails while this node exists; tierlock and kazoo ignore the node"
		case grade != inspect.Problem && curator(kind) && curatorNumber(o.Name, kind) < curatorNumber(c.Node, kind):
			grade, why = inspect.Warning, fmt.Sprintf("Curator reads a number in its name, and %s waits for this node; "+
				"tierlock and kazoo ignore the node", c.Node)
		}
	}
	if o.Children > 0 {
		why += fmt.Sprintf("; has %d children", o.Children)
	}
	r.Find(grade, o.Name, "no contender: %s", why)
}
