package zknode

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
	"github.com/tierlock/tierlock/internal/zkqueue"
)

// Contenders returns the queue.
func (l *Lock) Contenders(ctx context.Context) ([]zkqueue.Contender, error) {
	return ask(ctx, l.client, "contenders of "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Contenders(ctx) })
}

// Revoke asks those that have the lock to give it up.
func (l *Lock) Revoke(ctx context.Context) ([]zkqueue.Contender, error) {
	return ask(ctx, l.client, "revoke "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Revoke(ctx) })
}

// What the gate does with a node.
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

// MayLinger returns the same lock with nodes that say so.
func (l *Lock) MayLinger(d time.Duration) *Lock {
	other := *l
	other.linger = d
	return &other
}

// Mode returns the same lock with nodes that share it so.
func (l *Lock) Mode(m second.Mode) *Lock {
	other := *l
	other.mode = m
	return &other
}

// StopWatchdog makes the process blind for the end of its lease, as a process is that was
// stopped: only who looks at the clock knows.
func (n *Node) StopWatchdog() {
	n.session.StopWatchdog()
}

// Suspend has the machine of the client sleep for d, as the clock of its leases sees it.
func (c *Client) Suspend(d time.Duration) { c.link.Clock().Suspend(d) }

// ShareForNobody does what is next when the caller of Share leaves right behind the look at the queue.
func (n *Node) ShareForNobody(behind string) {
	wanted, abandon := context.WithCancel(context.Background())
	abandon()
	n.replace(wanted, behind)
}

// HearOfItsEnd does what an event does first that tells of the node's deletion.
func (n *Node) HearOfItsEnd() {
	for i := range n.znodes {
		n.znodes[i].watcher.Gone.Store(true)
	}
}

// AttachReading is Attach, and calls f each time when the id of the connection's session has been read.
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

// LookForSession does what everything does that needs a session.
func (c *Client) LookForSession() { c.link.Session() }

// Watchers is how many wait for news of path.
func (c *Client) Watchers(path string) int { return c.link.Events.Watchers()[path] }

// Library is what the client talks to the server with.
func (c *Client) Library() *zk.Conn { return c.link.Conn }

// Listeners returns the number of those who are told of events.
func (c *Client) Listeners() (all int) {
	for _, n := range c.link.Events.Watchers() {
		all += n
	}
	return all
}

// Leave leaves a znode to the reaper.
func (c *Client) Leave(path string) {
	c.reaper.add(remains{parent: parentOf(path), paths: []string{path}})
}

// Room waits until the reaper is not overwhelmed.
func (c *Client) Room(ctx context.Context) error { return c.reaper.room(ctx) }

// Stuck is why a znode is waited for that should be gone, nil if it is not one of ours.
func (c *Client) Stuck(path string) error { return c.reaper.stuck(path) }

// Taken is the answer that counts of those to all ways to create a node.
func Taken(answers ...link.Answer) link.Answer { return new(attempt).taken("CREATE", answers) }
