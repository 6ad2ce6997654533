package zkqueue

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
)

// A Contender is one node in the queue for a lock.
type Contender struct {
	Node     string // name below the lock path
	Pair     string // that of its second znode, which zklock.WithKazoo makes; else ""
	Kind     Kind   // by the form of the name
	Sequence int32  // place in the queue: lower goes first
	Data     []byte // content of the node, nil if it is not readable

	// Session owns the node. Session is 0 if the server shows no owner because this process may not read the node.
	Session int64 // that owns the node; 0 for a node that outlives its session

	// The embedded contender has what the node shows, by the server's clock, and the description of its process, which is empty for other
	// libraries. A writer that has become a reader is shown with a higher token than the one that it has as the holder. A request by
	// Curator's Revoker replaces the description.
	second.Contender
}

// Parse separates the contenders among the children of a lock path, in the order of the queue, from the other children. Parse fills in
// what the names show: Node, Pair, Kind and Sequence.
func Parse(children []string) (queue []Contender, others []string) {
	queue = make([]Contender, 0, len(children))
	for _, name := range children {
		if kind, sequence, ok := ParseName(name); ok {
			queue = append(queue, Contender{Node: name, Kind: kind, Sequence: sequence})
		} else {
			others = append(others, name)
		}
	}
	slices.SortFunc(queue, func(a, b Contender) int { return cmp.Compare(a.Sequence, b.Sequence) })
	contenders := queue[:0]
	for _, c := range queue {
		if last := len(contenders) - 1; last >= 0 && contenders[last].pairs(c) {
			contenders[last].Pair = c.Node
			continue
		}
		contenders = append(contenders, c)
	}
	return contenders, others
}

// pairs reports whether next, the next contender in the queue, is the second znode of the same node of ours. Both znodes are created in
// one transaction, so no contender is between them, and the lock is lost when one of them is gone.
func (c *Contender) pairs(next Contender) bool {
	if next.Sequence != c.Sequence+1 {
		return false
	}
	first, second := c.Node[:len(c.Node)-sequenceDigits], next.Node[:len(next.Node)-sequenceDigits]
	for _, markers := range ownMarkers {
		id, bridged := strings.CutSuffix(second, markers[1])
		if bridged && strings.HasPrefix(id, "_c_") && first == id+markers[0] {
			return true
		}
	}
	return false
}

// ByToken compares contenders by their tokens, for those that have permits.
func ByToken(a, b Contender) int {
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Node, b.Node))
}

// Take takes over the content and the stat of the node.
func (c *Contender) Take(data []byte, stat *zk.Stat) {
	c.Session, c.Token, c.Since, c.Data = stat.EphemeralOwner, stat.Czxid, time.UnixMilli(stat.Ctime), data
	d, _ := parseDescription(data)
	d.Tell(&c.Contender)
	c.Asked = Asked(data)
}

// ForGate returns the contender in the form that package tier shows.
func (c Contender) ForGate() second.Contender {
	c.ID, c.Shared = second.Text(c.Node), c.Kind.Reads()
	return c.Contender
}

// Request is what Curator writes to a node to ask its owner for the lock.
const Request = "__REVOKE__"

// Asked reports whether the content of a node is such a request, or has one in it.
func Asked(data []byte) bool {
	d, _ := parseDescription(data)
	return d.Revoke || string(data) == Request
}

// request returns what to write to a node to ask its owner for the lock. A description of ours keeps its fields and gets another one for
// the request.
func (c Contender) request() []byte {
	if _, described := parseDescription(c.Data); !described || !Ours(c.Node) {
		return []byte(Request)
	}
	return []byte(second.Mark(string(c.Data), "revoke", "true"))
}

// parseDescription reads the content of a node, if that is a description.
func parseDescription(data []byte) (d second.Description, ok bool) {
	if json.Unmarshal(data, &d) != nil || d.Version != 1 {
		return second.Description{}, false
	}
	return d, true
}
