package zklock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// A Contender is one node in the queue for a lock.
type Contender struct {
	Node     string    // name below the lock path
	Kind     Kind      // by the form of the name
	Sequence int32     // place in the queue: lower goes first
	Session  int64     // that owns the node; 0 for a node that outlives its session
	Token    int64     // fencing token it has as holder
	Since    time.Time // creation of the node, by the server's clock
	Data     []byte    // content of the node, nil if it is not readable

	// What the process says of itself; zero for other libraries' nodes.
	Host  string
	PID   int
	Label string
}

// owner is the content of a lock node.
type owner struct {
	Version int       `json:"v"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Label   string    `json:"label,omitempty"`
	Time    time.Time `json:"time"` // by the owner's clock
}

func newOwner(label string) owner {
	host, _ := os.Hostname() // only for people to read
	return owner{Version: 1, Host: host, PID: os.Getpid(), Label: label}
}

// describe returns the content of a node created now. Written once: any later write
// would wake the successor for nothing.
func (o owner) describe() []byte {
	o.Time = time.Now().UTC()
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // keeps the content below one KiB whatever the label
	encoder.Encode(o)            // strings, a number and a present time: cannot fail
	return bytes.TrimSpace(data.Bytes())
}

// Contenders returns the queue, the holder first. It asks for each node separately, so
// the picture is not one instant's; nodes that go meanwhile are left out. A lock that
// was never used has none.
func (l *Lock) Contenders(ctx context.Context) ([]Contender, error) {
	ctx, cancel := l.client.scope(ctx)
	defer cancel()
	type answer struct {
		queue []Contender
		err   error
	}
	answers := make(chan answer, 1)
	if !l.client.spawn(func() {
		queue, err := l.contenders(ctx)
		answers <- answer{queue, err}
	}) {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", l.path, ErrClosed)
	}
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = l.client.explain(context.Cause(ctx))
	}
	if a.err != nil {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", l.path, a.err)
	}
	return a.queue, nil
}

// contenders looks until it gets an answer.
func (l *Lock) contenders(ctx context.Context) ([]Contender, error) {
	for retry := newBackoff(); ; {
		if _, err := l.client.await(ctx); err != nil {
			return nil, err
		}
		queue, err := l.survey(ctx)
		if err == nil || classify(err) == permanent {
			return queue, err
		}
		if err := pause(ctx, retry.NextBackOff()); err != nil {
			return nil, l.client.explain(err)
		}
	}
}

// survey looks at the queue once.
func (l *Lock) survey(ctx context.Context) ([]Contender, error) {
	children, _, err := l.client.conn.Children(l.path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var queue []Contender
	for _, name := range children {
		kind, sequence, ok := parseName(name)
		if !ok {
			continue
		}
		c := Contender{Node: name, Kind: kind, Sequence: sequence}
		switch err := l.inspect(&c); {
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
	slices.SortFunc(queue, func(a, b Contender) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return queue, nil
}

func (l *Lock) inspect(c *Contender) error {
	path := l.path + "/" + c.Node
	data, stat, err := l.client.conn.Get(path)
	if errors.Is(err, zk.ErrNoAuth) {
		var exists bool
		if exists, stat, err = l.client.conn.Exists(path); err == nil && !exists {
			err = zk.ErrNoNode
		}
		data = nil
	}
	if err != nil {
		return err
	}
	c.Session, c.Token, c.Since, c.Data = stat.EphemeralOwner, stat.Czxid, time.UnixMilli(stat.Ctime), data
	var o owner
	if json.Unmarshal(data, &o) == nil && o.Version == 1 {
		c.Host, c.PID, c.Label = o.Host, o.PID, o.Label
	}
	return nil
}
