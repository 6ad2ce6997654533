package zkqueue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"slices"
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

	// Zero if the server does not tell those who may not read the node.
	Session int64     // that owns the node; 0 for a node that outlives its session
	Token   int64     // fencing token it has as holder; of a writer that is shared by now, a higher number than that
	Since   time.Time // creation of the node, by the server's clock

	// What the process says of itself; zero for other libraries' nodes. Of a text 256 bytes count, and
	// what is not plainly printed is spelled out.
	Host   string
	PID    int
	Label  string
	Linger time.Duration // for how long the process may keep the node while nobody holds the lock

	// Asked reports that somebody has asked the contender to give the lock up, see [Path.Revoke]. If that was
	// Curator's Revoker, its request has taken the place of what the process says of itself.
	Asked bool
}

// Parse tells the contenders among the children of a lock path, in order, from its other
// children. It knows what names tell: Node, Pair, Kind and Sequence.
func Parse(children []string) (queue []Contender, others []string) {
	for _, name := range children {
		c, ok := Named(name)
		if !ok {
			others = append(others, name)
			continue
		}
		queue = append(queue, c)
	}
	slices.SortFunc(queue, func(a, b Contender) int { return cmp.Compare(a.Sequence, b.Sequence) })
	var first *Contender
	contenders := queue[:0]
	for _, c := range queue {
		if first != nil && Paired(first.Node, c.Node) {
			first.Pair, first = c.Node, nil
			continue
		}
		contenders = append(contenders, c)
		first = &contenders[len(contenders)-1]
	}
	return contenders, others
}

// Named returns what the name of a contender tells. It reports false for any other name.
func Named(name string) (c Contender, ok bool) {
	kind, sequence, ok := ParseName(name)
	return Contender{Node: name, Kind: makerOf(name, kind), Sequence: sequence}, ok
}

// ByToken compares contenders by their tokens, for those that have permits.
func ByToken(a, b Contender) int {
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Node, b.Node))
}

// Take takes what a node tells.
func (c *Contender) Take(data []byte, stat *zk.Stat) {
	c.Session, c.Token, c.Since, c.Data = stat.EphemeralOwner, stat.Czxid, time.UnixMilli(stat.Ctime), data
	c.Asked = Asked(data)
	if d, ok := parseDescription(data); ok {
		c.Host, c.PID, c.Label = second.Text(d.Host), d.PID, second.Text(d.Label)
		c.Linger = time.Duration(d.Linger) * time.Millisecond
	}
}

// ForGate is the contender as package tier shows it.
func (c Contender) ForGate() second.Contender {
	return second.Contender{
		ID: second.Text(c.Node), Token: c.Token, Since: c.Since, Host: c.Host, PID: c.PID, Label: c.Label, Linger: c.Linger,
		Shared: c.Kind.Reads(), Asked: c.Asked,
	}
}

// Request is what Curator writes to a node to ask its owner for the lock.
const Request = "__REVOKE__"

// Asked reports whether the content of a node is such a request, or has one in it.
func Asked(data []byte) bool {
	d, _ := parseDescription(data)
	return d.Revoke || string(data) == Request
}

// request is what to write to a node to ask its owner for the lock. A description of ours goes on saying who that is, with
// all that a later version has put there.
func (c Contender) request() []byte {
	if _, described := parseDescription(c.Data); !described || !Ours(c.Node) {
		return []byte(Request)
	}
	fields := make(map[string]json.RawMessage)
	json.Unmarshal(c.Data, &fields) // has just been read
	fields["revoke"] = json.RawMessage("true")
	return encode(fields)
}

// A Description is the content of a lock node: what its process says of itself.
type Description struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Linger  int64     `json:"linger_ms,omitempty"`
	Time    time.Time `json:"time"`             // by the owner's clock
	Revoke  bool      `json:"revoke,omitempty"` // somebody has asked it for the lock
}

// Describe returns what nodes of this process say.
func Describe(label string) Description {
	host, _ := os.Hostname() // only for people to read
	return Description{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// Encode returns the content of a node created now, which may linger. Its owner writes once: any
// later write would wake the successor for nothing.
func (d Description) Encode(linger time.Duration) []byte {
	d.Linger, d.Time = linger.Milliseconds(), time.Now().UTC()
	return encode(d)
}

func encode(fields any) []byte {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // keeps the content below one KiB whatever the label
	encoder.Encode(fields)       // strings, numbers and a time that was present: cannot fail
	return bytes.TrimSpace(data.Bytes())
}

// parseDescription reads the content of a node, if that is a description.
func parseDescription(data []byte) (d Description, ok bool) {
	if json.Unmarshal(data, &d) != nil || d.Version != 1 {
		return Description{}, false
	}
	return d, true
}
