package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
)

// A Contender is one node in the queue for a lock.
type Contender struct {
	Node     string // name below the lock path
	Pair     string // that of its second znode, which [WithKazoo] makes; else ""
	Kind     Kind   // by the form of the name
	Sequence int32  // place in the queue: lower goes first
	Data     []byte // content of the node, nil if it is not readable

	// Zero if the server does not tell those who may not read the node.
	Session int64     // that owns the node; 0 for a node that outlives its session
	Token   int64     // fencing token it has as holder; of a writer that is shared by now, a higher number than that
	Since   time.Time // creation of the node, by the server's clock

	// What the process says of itself; zero for other libraries' nodes. Of a text 256 bytes count, and
	// what is not plainly printed is spelled out.
	Host  string
	PID   int
	Label string

	// Asked reports that somebody has asked the contender to give the lock up, see [Lock.Revoke]. If that was
	// Curator's Revoker, its request has taken the place of what the process says of itself.
	Asked bool

	// Linger is for how long the process may keep the node while nobody holds the lock.
	// Lingering reports that it does so now, which only that process knows: others see
	// false.
	Linger    time.Duration
	Lingering bool
}

// Contenders returns the queue, the holder first. It reads each node separately, so the
// result is not a snapshot of one instant; nodes that go meanwhile are left out. A lock
// that was never used has none.
func (l *Lock) Contenders(ctx context.Context) ([]Contender, error) {
	queue, err := ask(ctx, l.client, l.survey)
	if err != nil {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", l.path, err)
	}
	return queue, nil
}

// survey looks at the queue once.
func (l *Lock) survey(ctx context.Context) ([]Contender, error) {
	children, _, err := l.client.link.Conn.Children(l.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, lacking("READ", l.path, err)
	}
	var queue []Contender
	names, _ := ParseQueue(children)
	for _, c := range names {
		switch err := l.client.fill(l.path, &c); {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		default:
			queue = append(queue, c)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return queue, nil
}

// ParseQueue tells the contenders among the children of a lock path, in order, from its other
// children. It knows what names tell: Node, Pair, Kind and Sequence; [Client.Inspect] reads the rest.
func ParseQueue(children []string) (queue []Contender, others []string) {
	for _, name := range children {
		kind, sequence, ok := parseName(name)
		if !ok {
			others = append(others, name)
			continue
		}
		queue = append(queue, Contender{Node: name, Kind: makerOf(name, kind), Sequence: sequence})
	}
	slices.SortFunc(queue, func(a, b Contender) int { return cmp.Compare(a.Sequence, b.Sequence) })
	var first *Contender
	contenders := queue[:0]
	for _, c := range queue {
		if first != nil && paired(first.Node, c.Node) {
			first.Pair, first = c.Node, nil
			continue
		}
		contenders = append(contenders, c)
		first = &contenders[len(contenders)-1]
	}
	return contenders, others
}

// fill reads the node of a contender for path.
func (c *Client) fill(path string, q *Contender) error {
	path += "/" + q.Node
	data, stat, err := c.link.Conn.Get(path)
	if errors.Is(err, zk.ErrNoAuth) {
		var exists bool
		if exists, stat, err = c.link.Conn.Exists(path); err == nil && !exists {
			err = zk.ErrNoNode
		}
		if data = nil; errors.Is(err, zk.ErrNoAuth) { // from 3.8.4 and 3.9.2 on
			return nil
		}
	}
	if err != nil {
		return err
	}
	q.read(data, stat)
	return nil
}

// read takes what a node tells.
func (q *Contender) read(data []byte, stat *zk.Stat) {
	q.Session, q.Token, q.Since, q.Data = stat.EphemeralOwner, stat.Czxid, time.UnixMilli(stat.Ctime), data
	q.Asked = asked(data)
	if d, ok := parseDescription(data); ok {
		q.Host, q.PID, q.Label = second.Text(d.Host), d.PID, second.Text(d.Label)
		q.Linger = time.Duration(d.Linger) * time.Millisecond
	}
}

// seen is what is known of a contender that is watched, without another read.
func (l *Lock) seen(name string) Contender {
	kind, _, _ := parseName(name)
	q := Contender{Node: name, Kind: makerOf(name, kind)}
	if a, ok := l.client.link.Events.Seen(l.path + "/" + name); ok {
		q.read(a.Data, &a.Stat)
	}
	return q
}
