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
		r.Find(inspect.Problem, c.Node, "has a negative number: no tierlock process can queue; delete it if no process owns it")
	case c.Sequence > zkqueue.LastSequence:
		r.Find(inspect.Problem, c.Node, "has a number beyond the last that is used, %d", zkqueue.LastSequence)
	case i > 0 && c.Sequence == r.Contenders[i-1].Sequence:
		r.Find(inspect.Problem, c.Node, "has the same number as %s: both may count themselves first", r.Contenders[i-1].Node)
	}
	if (kind == zkqueue.KindKazoo || kind == zkqueue.KindKazooRead) && strings.HasPrefix(c.Node, "_c_") {
		r.Find(inspect.Warning, c.Node, "is one half of a pair whose other half is gone: its process has lost the lock")
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
			grade, why = inspect.Problem, "zk.Lock fails as long as it is there; tierlock and kazoo ignore it"
		case grade != inspect.Problem && curator(kind) && curatorNumber(o.Name, kind) < curatorNumber(c.Node, kind):
			grade, why = inspect.Warning, fmt.Sprintf("Curator takes it for a number, and %s waits for it; tierlock and kazoo ignore it", c.Node)
		}
	}
	if o.Children > 0 {
		why += fmt.Sprintf("; has %d children", o.Children)
	}
	r.Find(grade, o.Name, "no contender: %s", why)
}
