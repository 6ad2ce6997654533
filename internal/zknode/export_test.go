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

// Revoke asks the holders for the lock.
func (l *Lock) Revoke(ctx context.Context) ([]zkqueue.Contender, error) {
	return ask(ctx, l.client, "revoke "+l.path, func() ([]zkqueue.Contender, error) { return l.queue().Revoke(ctx) })
}

// These methods do what the gate does with a node.
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

// MayLinger returns the same lock, with nodes whose description has the time of linger.
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

// StopWatchdog stops the timer of the lease, as in a process that was stopped: only a caller that checks the clock sees the end of the
// lease.
func (n *Node) StopWatchdog() {
	n.session.StopWatchdog()
}

// Suspend makes the machine of the client sleep for d, as the clock of its leases sees it.
func (c *Client) Suspend(d time.Duration) { c.link.Clock().Suspend(d) }

// ShareForNobody does what follows if the caller of Share leaves right after the queue was read.
func (n *Node) ShareForNobody(behind string) {
	wanted, abandon := context.WithCancel(context.Background())
	abandon()
	n.replace(wanted, behind)
}

// HearOfItsEnd does the first thing that the event of the node's deletion causes.
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

// LookForSession does what every operation does that needs a session.
func (c *Client) LookForSession() { c.link.Session() }

// Watchers returns how many watchers wait for events of path.
func (c *Client) Watchers(path string) int { return c.link.Events.Watchers()[path] }

// Library returns the connection of the client library.
func (c *Client) Library() *zk.Conn { return c.link.Conn }

// Listeners returns the number of registered watchers.
func (c *Client) Listeners() (all int) {
	for _, n := range c.link.Events.Watchers() {
		all += n
	}
	return all
}

// Leave hands a znode to the reaper.
func (c *Client) Leave(path string) {
	c.reaper.add(remains{parent: parentOf(path), paths: []string{path}})
}

// Room waits until the reaper has space for more znodes.
func (c *Client) Room(ctx context.Context) error { return c.reaper.room(ctx) }

// Stuck returns why a znode still exists that should have been deleted, and nil if it is not one of ours.
func (c *Client) Stuck(path string) error { return c.reaper.stuck(path) }

// Taken chooses the relevant answer among those to all ways to create a node.
func Taken(answers ...link.Answer) link.Answer { return new(attempt).taken("CREATE", answers) }
