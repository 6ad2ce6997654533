package inspect

import (
	"fmt"
	"strings"

	"github.com/tierlock/tierlock/zklock"
)

func (r *Report) examineContender(i int) {
	c := &r.Contenders[i]
	r.find(OK, c.Node, "%s", r.explain(c))
	switch {
	case !c.Readable:
		r.find(Warning, c.Node, "may not be read with these credentials: whose it is, and whether it goes with its process, is unknown")
	case !c.Ephemeral && i == 0:
		r.find(Problem, c.Node, "belongs to no session: it stays, and all behind it wait for ever; if it is nobody's, "+
			"tierlock break %s -token %d", r.Path, c.Token)
	case !c.Ephemeral:
		r.find(Problem, c.Node, "belongs to no session: it stays, and all behind it will wait for ever; if it is nobody's, delete it")
	}
	switch {
	case c.Sequence < 0:
		r.find(Problem, c.Node, "has a negative number: no tierlock process can queue; delete it if it is nobody's")
	case c.Sequence > lastSequence:
		r.find(Problem, c.Node, "has a number beyond the last that is used, %d", lastSequence)
	case i > 0 && c.Sequence == r.Contenders[i-1].Sequence:
		r.find(Problem, c.Node, "has the number of %s: both may take themselves for the first", r.Contenders[i-1].Node)
	}
	if (c.Kind == zklock.KindKazoo || c.Kind == zklock.KindKazooRead) && strings.HasPrefix(c.Node, "_c_") {
		r.find(Warning, c.Node, "is one half of a pair whose other half is gone: its process has lost the lock")
	}
	if ours(c.Kind) && c.Ephemeral {
		for _, other := range r.Contenders[:i] {
			if other.Kind == c.Kind && other.Session == c.Session && other.Label == c.Label {
				r.find(Note, c.Node, "its session also made %s: two clients on one connection, or a node about to be deleted", other.Node)
				break
			}
		}
	}
	if c.Asked {
		r.find(Note, c.Node, "somebody has asked it for the lock, which has replaced what it said of itself")
	}
	if c.LingerMS > 0 {
		r.find(Note, c.Node, "its process may keep it for %d ms while nobody there wants the lock", c.LingerMS)
	}
}

// explain says what a contender is and what it waits for.
func (r *Report) explain(c *Contender) string {
	who := sortOf(c.read).String()
	switch {
	case c.PID != 0:
		who += fmt.Sprintf(" on host %q, pid %d", c.Host, c.PID)
		if c.Label != "" {
			who += fmt.Sprintf(", label %q", c.Label)
		}
	case c.Content != "":
		who += fmt.Sprintf(", says %q", c.Content)
	}
	switch c.State {
	case Waits:
		return fmt.Sprintf("%s; waits for %d ahead of it, the nearest #%d", who, c.Ahead, c.behind)
	case Perhaps:
		return fmt.Sprintf("%s; waits for %d ahead of it, if set up so, and else holds the lock", who, c.Unsure)
	}
	switch {
	case c.Ignored > 0:
		return fmt.Sprintf("%s; holds the lock, past %d ahead of it", who, c.Ignored)
	case c.Beside > 0:
		return fmt.Sprintf("%s; holds the lock, beside %d ahead of it that read, too", who, c.Beside)
	}
	return who + "; holds the lock"
}

func (r *Report) examineOther(o Other) {
	grade, why := Note, "ignored by tierlock and kazoo"
	for i := range r.Contenders {
		c := &r.Contenders[i]
		switch {
		case c.Kind == zklock.KindZKLock && !knownToZKLock(o.Name):
			grade, why = Problem, "zk.Lock fails as long as it is there; tierlock and kazoo ignore it"
		case grade != Problem && curator(c.Kind) && curatorNumber(o.Name, c.Kind) < curatorNumber(c.Node, c.Kind):
			grade, why = Warning, fmt.Sprintf("Curator takes it for a number, and %s waits for it; tierlock and kazoo ignore it", c.Node)
		}
	}
	if o.Children > 0 {
		why += fmt.Sprintf("; has %d children", o.Children)
	}
	r.find(grade, o.Name, "no contender: %s", why)
}
