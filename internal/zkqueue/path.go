package zkqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A Path is a lock path, or that of a semaphore's permits, as it is read over a connection.
type Path struct {
	Conn    *zk.Conn
	Name    string // on the server
	Permits bool   // each child is a permit, whatever its name
}

// Node is the path of a child.
func (p Path) Node(name string) string { return strings.TrimSuffix(p.Name, "/") + "/" + name }

// queue lists the contenders, none if the path does not exist.
func (p Path) queue() ([]Contender, error) {
	children, _, err := p.Conn.Children(p.Name)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	queue, others := Parse(children)
	for i := 0; p.Permits && i < len(others); i++ {
		queue = append(queue, Contender{Node: others[i]})
	}
	return queue, Lacking("READ", p.Name, err)
}

// Contenders returns the queue, the holder first. It reads each node separately, so the
// result is not a snapshot of one instant; nodes that go meanwhile are left out. A lock
// that was never used has none.
func (p Path) Contenders(ctx context.Context) ([]Contender, error) {
	queue, err := p.queue()
	if err != nil {
		return nil, err
	}
	return p.ReadAll(ctx, queue)
}

// ReadAll reads the nodes of contenders, and leaves out those that have gone.
func (p Path) ReadAll(ctx context.Context, queue []Contender) (all []Contender, err error) {
	for _, c := range queue {
		switch err := p.Read(&c); {
		case errors.Is(err, zk.ErrNoNode):
		case err != nil:
			return nil, err
		default:
			all = append(all, c)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return all, nil
}

// Read reads the node of a contender. One that has gone is [zk.ErrNoNode]; one that may not be read is no error.
func (p Path) Read(c *Contender) error {
	path := p.Node(c.Node)
	data, stat, err := p.Conn.Get(path)
	if errors.Is(err, zk.ErrNoAuth) {
		var exists bool
		if exists, stat, err = p.Conn.Exists(path); err == nil && !exists {
			err = zk.ErrNoNode
		}
		if data = nil; errors.Is(err, zk.ErrNoAuth) { // from 3.8.4 and 3.9.2 on
			return nil
		}
	}
	if err != nil {
		return err
	}
	c.Take(data, stat)
	return nil
}

// ErrDeparted says that the head of the queue went between the look and what was to be done to it. It is worth another look.
var ErrDeparted = errors.New("the holder has just gone")

// listed lists the contenders that are there now: the sync is for a server that lags.
func (p Path) listed() ([]Contender, error) {
	if _, err := p.Conn.Sync(p.Name); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	return p.queue()
}

// present reads who is in the queue now.
func (p Path) present(ctx context.Context) ([]Contender, error) {
	queue, err := p.listed()
	if err != nil {
		return nil, err
	}
	return p.ReadAll(ctx, queue)
}

// Holders reads which contenders have the lock now: the head of the queue or, if that is a reader, all readers before the first writer.
func (p Path) Holders(ctx context.Context) ([]Contender, error) {
	queue, err := p.listed()
	if err != nil {
		return nil, err
	}
	together := min(1, len(queue))
	for together > 0 && together < len(queue) && queue[0].Kind.Reads() && queue[together].Kind.Reads() {
		together++
	}
	holders, err := p.ReadAll(ctx, queue[:together])
	if err == nil && len(holders) == 0 && len(queue) > 0 {
		err = ErrDeparted
	}
	return holders, err
}

// Revoke asks those that have the lock to give it up, and returns who they are: the one at the head of
// the queue, or if that reads, all that do so without anybody else in between. It adds the request to what
// our nodes say of themselves, and writes "__REVOKE__" to those that say nothing, or what zklock.WithNodeData has
// put there, or are of others, as Curator's Revoker does. Package zklock tells the holder, Curator one that is revocable; other
// libraries take no notice. Nobody is made to do anything, and nobody need have the lock: then nobody is asked, and
// that is no error.
//
// It takes WRITE permission on the nodes; an error that wraps [zk.ErrNoAuth] says so. Some may have
// been asked if there is an error.
func (p Path) Revoke(ctx context.Context) (told []Contender, err error) {
	holders, err := p.Holders(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		_, err := p.Conn.Set(p.Node(h.Node), h.request(), -1)
		switch {
		case err == nil:
			told = append(told, h)
		case !errors.Is(err, zk.ErrNoNode):
			return nil, Lacking("WRITE", p.Node(h.Node), err)
		}
	}
	if len(holders) > 0 && len(told) == 0 {
		return nil, ErrDeparted
	}
	return told, nil
}

// Lacking says which permission, and on which node, a request went without. Errors of
// another kind stay what they are.
func Lacking(permission, path string, err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("no %s permission on %s (WithAuth presents credentials, and so does a client certificate): %w", permission, path, err)
	}
	return err
}

// What package zklock writes to paths.
const (
	// ContainerData is the content of the containers that it creates, and how it knows them again: a server does not tell its
	// clients what is a container. Any other node may be somebody's, with data, an ACL or a quota, or be meant to stay.
	ContainerData = "tierlock: a container, which goes when it is empty"

	// PermitsMark is how the content of a path begins that says how many permits there are. The number follows.
	PermitsMark = "tierlock permits="
)

// Sequence numbers have 31 bits. From RenewFrom on, which is half of the range, paths are made anew, and LastSequence is the highest
// number that package zklock takes part with. Short of the end of the range there is room for the contenders of one queue.
const (
	RenewFrom    = 1 << 30
	LastSequence = 1<<31 - 1<<20 - 1
)
