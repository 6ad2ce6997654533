package zknode

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Contenders returns the contenders in the queue of the lock.
func (l *Lock) Contenders(ctx context.Context) ([]zkqueue.Contender, error) {
	return ask(ctx, l.client, "contenders of "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Contenders(ctx) })
}

// Revoke asks the holders of the lock to release it.
func (l *Lock) Revoke(ctx context.Context) ([]zkqueue.Contender, error) {
	return ask(ctx, l.client, "revoke "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Revoke(ctx) })
}

// The following methods act on a node as the gate of package tier does.
func (n *Node) Requeue(ctx context.Context) (*Node, error) {
	return n.lock.requeue(ctx, n, new(second.Wait))
}
func (n *Node) MultiIf(ctx context.Context, check func() error, ops ...any) ([]zk.MultiResponse, error) {
	return grant{n}.MultiIf(ctx, check, ops...)
}
func (n *Node) AwaitRelease() error              { return grant{n}.AwaitRelease() }
func (n *Node) Contended() <-chan struct{}       { return grant{n}.Contended().C() }
func (n *Node) ContendedFor() time.Duration      { return grant{n}.Contended().For() }
func (n *Node) Writing() bool                    { return !grant{n}.Idle() }
func (n *Node) Share(ctx context.Context) error  { return grant{n}.Share(ctx) }
func (n *Node) RevokeRequested() <-chan struct{} { return grant{n}.RevokeRequested() }
func (n *Node) Shared() bool                     { return grant{n}.Shared() }
func (n *Node) Confirm() bool                    { return grant{n}.Confirm() }
func (l *Lock) Equal(other *Lock) bool           { return l.equal(other) }
func (c *Client) PollClose() (leave func())      { return c.link.PollClose() }
func (c *Client) Reaping() int                   { return c.reaper.count() }

// MayLinger returns the same lock. The description in its nodes says that they may linger for d.
func (l *Lock) MayLinger(d time.Duration) *Lock {
	other := *l
	other.linger = d
	return &other
}

// Mode returns the same lock in another mode.
func (l *Lock) Mode(m second.Mode) *Lock {
	other := *l
	other.mode = m
	return &other
}

// StopWatchdog stops the timer that ends the lease, as if the process were paused. After that, only a call that checks the clock notices
// the end of the lease.
func (n *Node) StopWatchdog() {
	n.session.StopWatchdog()
}

// Suspend makes the clock of the leases believe that the machine was suspended for d.
func (c *Client) Suspend(d time.Duration) { c.link.Clock().Suspend(d) }

// ShareForNobody continues a Share after the read of the queue, for a caller that has just left.
func (n *Node) ShareForNobody(behind string) {
	wanted, abandon := context.WithCancel(context.Background())
	abandon()
	n.replace(wanted, behind)
}

// HearOfItsEnd does the first step that follows the event of the node's deletion.
func (n *Node) HearOfItsEnd() {
	for i := range n.znodes {
		n.znodes[i].watcher.Gone.Store(true)
	}
}

// AttachReading does the same as Attach. In addition, it calls f each time after the client has read the session ID of the connection.
func AttachReading(conn *zk.Conn, f func(), opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	c := newClient(o)
	c.link.Attach(conn, func() int64 {
		defer f()
		return conn.SessionID()
	})
	return c, nil
}

// LookForSession does the first step of each operation that needs a session.
func (c *Client) LookForSession() { c.link.Session() }

// Watchers returns the number of watchers that wait for events of path.
func (c *Client) Watchers(path string) int { return c.link.Events.Watchers()[path] }

// Library returns the connection of the client library.
func (c *Client) Library() *zk.Conn { return c.link.Conn }

// Listeners returns the number of registered watchers for all paths.
func (c *Client) Listeners() (all int) {
	for _, n := range c.link.Events.Watchers() {
		all += n
	}
	return all
}

// Leave tells the reaper to delete a znode.
func (c *Client) Leave(path string) {
	c.reaper.add(remains{parent: parentOf(path), paths: []string{path}})
}

// Room waits until the reaper can take more znodes.
func (c *Client) Room(ctx context.Context) error { return c.reaper.room(ctx) }

// Stuck returns why a znode that should have been deleted still exists. It returns nil if the reaper does not have to delete the znode.
func (c *Client) Stuck(path string) error { return c.reaper.stuck(path) }

// Taken returns the one answer that counts, if a node was created in several ways.
func Taken(answers ...link.Answer) link.Answer { return new(attempt).taken("CREATE", answers) }
