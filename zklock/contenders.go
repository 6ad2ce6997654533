package zklock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
)

// A Contender is one node in the queue for a lock.
type Contender struct {
	Node     string // name below the lock path
	Kind     Kind   // by the form of the name
	Sequence int32  // place in the queue: lower goes first
	Data     []byte // content of the node, nil if it is not readable

	// Zero if the server does not tell those who may not read the node.
	Session int64     // that owns the node; 0 for a node that outlives its session
	Token   int64     // fencing token it has as holder
	Since   time.Time // creation of the node, by the server's clock

	// What the process says of itself; zero for other libraries' nodes.
	Host  string
	PID   int
	Label string

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
	ctx, cancel := l.client.link.Scope(ctx)
	defer cancel()
	type answer struct {
		queue []Contender
		err   error
	}
	answers := make(chan answer, 1)
	if !l.client.link.Spawn(func() {
		queue, err := l.contenders(ctx)
		answers <- answer{queue, err}
	}) {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", l.path, ErrClosed)
	}
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = l.client.link.Explain(context.Cause(ctx))
	}
	if a.err != nil {
		return nil, fmt.Errorf("zklock: contenders of %s: %w", l.path, a.err)
	}
	return a.queue, nil
}

// contenders looks until it gets an answer.
func (l *Lock) contenders(ctx context.Context) ([]Contender, error) {
	for pace := retry.New(); ; {
		if _, err := l.client.link.AwaitSession(ctx); err != nil {
			return nil, err
		}
		queue, err := l.survey(ctx)
		if err == nil || classify(err) == permanent {
			return queue, err
		}
		if err := retry.Pause(ctx, pace.NextBackOff()); err != nil {
			return nil, l.client.link.Explain(err)
		}
	}
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
	for _, c := range parseQueue(children) {
		switch err := l.fill(&c); {
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

// parseQueue returns the contenders among children in order, as far as their names tell.
// A pair is one.
func parseQueue(children []string) []Contender {
	var queue []Contender
	for _, name := range children {
		if kind, sequence, ok := parseName(name); ok {
			if kind == KindMutex {
				kind = makerOf(name)
			}
			queue = append(queue, Contender{Node: name, Kind: kind, Sequence: sequence})
		}
	}
	slices.SortFunc(queue, func(a, b Contender) int { return cmp.Compare(a.Sequence, b.Sequence) })
	previous := ""
	return slices.DeleteFunc(queue, func(c Contender) bool {
		second := paired(previous, c.Node)
		previous = c.Node
		return second
	})
}

func (l *Lock) fill(c *Contender) error {
	path := l.path + "/" + c.Node
	data, stat, err := l.client.link.Conn.Get(path)
	if errors.Is(err, zk.ErrNoAuth) {
		var exists bool
		if exists, stat, err = l.client.link.Conn.Exists(path); err == nil && !exists {
			err = zk.ErrNoNode
		}
		if data = nil; errors.Is(err, zk.ErrNoAuth) { // from 3.8.4 and 3.9.2 on
			return nil
		}
	}
	if err != nil {
		return err
	}
	c.Session, c.Token, c.Since, c.Data = stat.EphemeralOwner, stat.Czxid, time.UnixMilli(stat.Ctime), data
	var d description
	if json.Unmarshal(data, &d) == nil && d.Version == 1 {
		c.Host, c.PID, c.Label = d.Host, d.PID, d.Label
		c.Linger = time.Duration(d.Linger) * time.Millisecond
	}
	return nil
}
