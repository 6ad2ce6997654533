package zkqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
)

// A Path is the path of a lock or of a semaphore's permits, together with the connection that reads it.
type Path struct {
	Conn    *zk.Conn
	Name    string // on the server
	Permits bool   // each child is a permit, whatever its name is
}

// Node returns the path of a child.
func (p Path) Node(name string) string { return strings.TrimSuffix(p.Name, "/") + "/" + name }

// queue lists the contenders. If the path does not exist, the list is empty.
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

// Contenders returns the queue, the holder first. Contenders reads each node separately. Therefore the result is not a snapshot of one
// instant, and it leaves out nodes that are deleted in the meantime. For a lock that was never used, the queue is empty.
func (p Path) Contenders(ctx context.Context) ([]Contender, error) {
	queue, err := p.queue()
	if err != nil {
		return nil, err
	}
	return p.ReadAll(ctx, queue)
}

// ReadAll reads the nodes of contenders. It leaves out nodes that have been deleted.
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

// Read reads the node of a contender. For a deleted node the error is [zk.ErrNoNode]. If this process may not read the node, Read returns
// no error.
func (p Path) Read(c *Contender) error {
	path := p.Node(c.Node)
	data, stat, err := p.Conn.Get(path)
	if errors.Is(err, zk.ErrNoAuth) {
		var exists bool
		if exists, stat, err = p.Conn.Exists(path); err == nil && !exists {
			err = zk.ErrNoNode
		}
		if data = nil; errors.Is(err, zk.ErrNoAuth) { // servers from 3.8.4 and 3.9.2 on also refuse to show the stat
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
var ErrDeparted = errors.New("the holder has just left the queue")

// The method listed lists the present contenders. It first sends a sync, because the server may lag behind.
func (p Path) listed() ([]Contender, error) {
	if _, err := p.Conn.Sync(p.Name); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return nil, err
	}
	return p.queue()
}

// The method present reads the contenders that are in the queue now.
func (p Path) present(ctx context.Context) ([]Contender, error) {
	queue, err := p.listed()
	if err != nil {
		return nil, err
	}
	return p.ReadAll(ctx, queue)
}

// Holders returns the contenders that have the lock now. If the head of the queue is a reader, these are all readers before the first
// writer. Otherwise the head is the only holder.
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

// Revoke asks the holders to release the lock, and returns them; see [Path.Holders]. If a node has a description that package zklock wrote,
// Revoke adds the request to that description. To all other nodes it writes "__REVOKE__", as Curator's Revoker does: to nodes of other
// libraries, to nodes without content, and to nodes with content from zklock.WithNodeData. Package zklock notifies its holder, and Curator
// notifies a holder that is revocable. Other libraries ignore the request. No holder has to comply. If the lock is free, Revoke does
// nothing and returns no error.
//
// Revoke needs WRITE permission on the nodes. Without it, Revoke returns an error that wraps [zk.ErrNoAuth]. After an error some holders
// may already have been asked.
func (p Path) Revoke(ctx context.Context) (told []Contender, err error) {
	holders, err := p.Holders(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		_, err := p.Conn.Set(p.Node(h.Node), Asking(h.Node, h.Data), -1)
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

// Lacking returns an error that names the missing permission and the node, if err is a refusal. It returns other errors unchanged.
func Lacking(permission, path string, err error) error {
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("no %s permission on %s (WithAuth or a client certificate presents credentials): %w", permission, path, err)
	}
	return err
}

// These constants are contents that package zklock writes to paths.
const (
	// ContainerData is the content of the containers that package zklock creates. Package zklock recognizes its containers by this content,
	// because a server does not show its clients which nodes are containers. Any other node may be permanent, or belong to another program,
	// with data, an ACL or a quota.
	ContainerData = "tierlock: a container, which goes when it is empty"

	// PermitsMark begins the content of a path that stores a number of permits. The number follows it.
	PermitsMark = "tierlock permits="
)

// Sequence numbers have 31 bits. From RenewFrom on, which is half of the range, the path is deleted and created again. LastSequence is the
// highest number that a contender of package zklock may have. The higher numbers are a reserve for the contenders of one queue.
const (
	RenewFrom    = 1 << 30
	LastSequence = 1<<31 - 1<<20 - 1
)
