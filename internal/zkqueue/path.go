package zkqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A Path is the path of a lock, or of a semaphore's permits, together with the connection over which it is read.
type Path struct {
	Conn    *zk.Conn
	Name    string // on the server
	Permits bool   // each child is a permit, whatever its name
}

// Node is the path of a child.
func (p Path) Node(name string) string { return strings.TrimSuffix(p.Name, "/") + "/" + name }

// queue lists the contenders. queue returns none if the path does not exist.
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

// Contenders returns the queue, the holder first. Contenders reads each node separately, so the result is not a snapshot of one instant,
// and nodes that are deleted meanwhile are left out. A lock that was never used has none.
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

// Read reads the node of a contender. For a deleted node the error is [zk.ErrNoNode]. A node that this process may not read is no error.
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

// ErrDeparted means that the head of the queue was deleted between the read and the action on it. The caller should read the queue again.
var ErrDeparted = errors.New("the holder has just gone")

// listed lists the present contenders. listed sends a sync first, because the server may lag behind.
func (p Path) listed() ([]Contender, error) {
	if _, err := p.Conn.Sync(p.Name); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	return p.queue()
}

// present reads the contenders that are in the queue now.
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

// Revoke asks the holders to release the lock, and returns them: the head of the queue or, if that is a reader, all readers before the
// first writer. To a node with a description of ours it writes the description with the request added. To all other nodes it writes
// "__REVOKE__", as Curator's Revoker does: nodes of other libraries, nodes without content, and those with content from
// zklock.WithNodeData. Package zklock notifies its holder, and Curator a holder that is revocable; other libraries ignore it. No holder
// has to comply. If the lock is free, Revoke does nothing and returns no error.
//
// Revoke takes WRITE permission on the nodes; an error that wraps [zk.ErrNoAuth] says so. After an error some holders may have been
// asked.
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

// Lacking turns a refusal into an error that names the missing permission and the node. Lacking returns other errors unchanged.
func Lacking(permission, path string, err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("no %s permission on %s (WithAuth presents credentials, and so does a client certificate): %w", permission, path, err)
	}
	return err
}

// What package zklock writes to paths.
const (
	// ContainerData is the content of the containers that package zklock creates. Package zklock recognizes its containers by this content,
	// because a server does not show its clients which nodes are containers. Any other node may be permanent, or belong to another program,
	// with data, an ACL or a quota.
	ContainerData = "tierlock: a container, which goes when it is empty"

	// PermitsMark begins the content of a path that stores its number of permits. The number follows.
	PermitsMark = "tierlock permits="
)

// Sequence numbers have 31 bits. From RenewFrom on, half of the range, the path is deleted and created again. LastSequence is the highest
// number that a contender of package zklock may have. The numbers above it leave room for the contenders of one queue.
const (
	RenewFrom    = 1 << 30
	LastSequence = 1<<31 - 1<<20 - 1
)
