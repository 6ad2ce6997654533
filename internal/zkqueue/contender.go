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
	Node     string // the name of the node below the lock path
	Pair     string // the name of its second znode, which zklock.WithKazoo creates; "" if there is none
	Kind     Kind   // shown by the form of the name
	Sequence int32  // the place in the queue: the lowest number is first
	Data     []byte // the content of the node; nil if it is not readable

	// Session is the session that owns the node. Session is 0 if the server shows no owner because this process may not read the node.
	Session int64 // also 0 for a node that outlives its session

	// The embedded contender has what the node shows, by the server's clock. It also has the description of its process, which is empty for
	// other libraries. A writer that has become a reader has a new node, so it appears with a higher token than that of its hold. A request
	// by Curator's Revoker replaces the description.
	second.Contender
}

// Parse separates the contenders among the children of a lock path from the other children. The contenders are in the order of the queue.
// Parse sets the fields that the names show: Node, Pair, Kind and Sequence.
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

// The method pairs reports whether next, the next contender in the queue, is the second znode of the pair that zklock.WithKazoo creates.
// One transaction creates both, so no contender is between them. If one of them is deleted, the lock is lost.
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

// ByToken compares contenders that have permits by their tokens.
func ByToken(a, b Contender) int {
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Node, b.Node))
}

// Take copies the content and the stat of the node into the contender.
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

// Request is the content that Curator writes to a node to ask its owner for the lock.
const Request = "__REVOKE__"

// Asked reports whether the content of a node is such a request, or contains one.
func Asked(data []byte) bool {
	d, _ := parseDescription(data)
	return d.Revoke || string(data) == Request
}

// Asking returns the content of a node, with a request to its owner for the lock. A description that this package wrote keeps its fields,
// and gets one more field for the request.
func Asking(node string, data []byte) []byte {
	if _, described := parseDescription(data); !described || !Ours(node) {
		return []byte(Request)
	}
	return []byte(second.Mark(string(data), "revoke", "true"))
}

// parseDescription reads the content of a node. If the content is no description, ok is false.
func parseDescription(data []byte) (d second.Description, ok bool) {
	if json.Unmarshal(data, &d) != nil || d.Version != 1 {
		return second.Description{}, false
	}
	return d, true
}
