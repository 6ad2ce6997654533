package zknode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/notice"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/internal/zknode/internal/link"
)

// A Client is the connection of this process to ZooKeeper: the session, its lease, and
// the reaper of what is left over. Use one per process and ensemble; it is safe for
// concurrent use.
type Client struct {
	options options
	chroot  string      // which all paths are below, "" for none
	content second.Head // of lock nodes: what they say of this process
	link    *link.Link
	flush   func() // has the logger write what was logged so far

	plain     atomic.Bool // the server knows no containers (before 3.5)
	reaper    reaper
	abandoned sync.Map // of each path the last attempt that goes on without its caller, as a channel that is closed when it has ended
	renewals  renewals
	refusals  notice.Refusals // of acquisitions, while there is a session

	closing sync.Once
}

func newClient(o options) *Client {
	var flush func()
	o.Logger, flush = notice.Aside(o.Logger)
	c := &Client{
		options:  o,
		flush:    flush,
		content:  second.HeadOf(second.Describe(o.Label)),
		link:     link.New(o.Config),
		renewals: renewals{underWay: make(map[string]context.Context), failed: make(map[string]int32)},
	}
	c.reaper = reaper{client: c, items: make(map[*remains]remains)}
	c.refusals = notice.Refusals{
		Log: c.log(), Spawn: c.link.Spawn, Fades: func() time.Duration { return 10*time.Second + c.link.Timeout() },
	}
	return c
}

// log returns the log for events of its locks.
func (c *Client) log() notice.Log { return notice.Log{Logger: c.options.Logger, Package: "zklock"} }

// Close ends the session: every lock of the client is lost, its nodes disappear from the server, and waiters get [ErrClosed]. While the
// server cannot be reached the nodes stay until the session times out there. Close returns within a few seconds and leaves no goroutine,
// except one that a logger blocks; for a client made by [Attach], see there. Close may be called more than once and returns nil.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.link.End()
		c.link.Close()
		c.flush()
	})
	return nil
}

// LeaseMargin returns for how long after the end of its lease the servers still keep a lock of this client from other clients; see
// [WithLeaseMargin]. The margin depends on the negotiated session timeout.
func (c *Client) LeaseMargin() time.Duration { return c.link.Margin(c.link.Timeout()) }

// Done returns a channel that is closed when the client is closed. A client made by [Attach] closes when its connection is closed, but
// only while a goroutine waits for a lock or holds one.
func (c *Client) Done() <-chan struct{} { return c.link.Context().Done() }

// Err returns nil while the client is connected, and otherwise why it is not: [ErrClosed], or an error that wraps [zk.ErrNoServer] and the
// last failure to connect. Held locks are then suspended, and not lost, until their lease ends.
func (c *Client) Err() error { return c.link.Err() }

// Dial connects to the ensemble of connect, "host:port,host:port/path", and blocks until it has a session or ctx ends; zklock.Dial
// documents the path and the errors.
//
// The client reconnects by itself and opens a new session after one has expired. It resolves names whenever it connects, and tries all
// addresses of a name; if that fails or takes longer than a second, it tries the addresses that it found before.
//
// After an error nothing is left, with two exceptions when ctx ends while no server answers: the look-up of a name may last for its 3 s,
// and a goroutine waits for up to a second for a server that stopped answering after the handshake.
func Dial(ctx context.Context, connect string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	servers, chroot, wrong := parseConnect(connect)
	if err = cmp.Or(err, wrong); err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	c := newClient(o)
	c.chroot = chroot
	if err := c.dial(ctx, servers); err != nil {
		return nil, fmt.Errorf("zklock: dial %s: %w", connect, err)
	}
	return c, nil
}

// dial connects the client to one of the servers, presents the credentials, and waits for a session. A lazy start does that in the
// background. After an error nothing is left.
func (c *Client) dial(ctx context.Context, servers []string) error {
	err := c.link.Dial(ctx, servers)
	if err != nil {
		return err
	}
	if c.options.Lazy {
		c.link.Spawn(func() { c.link.Present(c.link.Context()) })
		return nil
	}
	if err = c.link.Present(ctx); err != nil {
		c.closeUntil(ctx)
	}
	return err
}

// closeUntil closes the client, but does not wait much longer than ctx for the answer of the server.
func (c *Client) closeUntil(ctx context.Context) {
	closing, leave := context.WithCancel(context.Background())
	defer leave()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(100*time.Millisecond, leave) })()
	link.WaitFor(closing, func() { c.Close() })
}

// Attach returns a client over the program's own connection. It is weaker than [Dial]: a lock counts as lost when the session has changed
// or its node was deleted, but there is no lease. While the server is unreachable, the holder is therefore not notified that it may have
// lost the lock. [Node.Lost] is late by up to one read of the node. The library's problems with hung and with broken servers remain.
// [WithSessionTimeout] should repeat the timeout of conn; options about dialing are ignored.
//
// The library returns from a request only with the answer, so requests that need an order are sent one after the other. An acquisition
// takes two round trips, and on a missing path three more and one for each node of the path.
//
// When conn is closed, the client closes a tenth of a second later while a goroutine waits for a lock or holds one, and otherwise as soon
// as one does: the library does not report the close, and the client has to ask it. Nothing is sent for that.
//
// Close closes the client, not the connection. Release locks before, because otherwise their nodes stay as long as the session of conn.
// Calls that a server does not answer end with their connection, and so do their goroutines. Close does not wait for these.
func Attach(conn *zk.Conn, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: attach: %w", err)
	}
	c := newClient(o)
	c.link.Attach(conn, conn.SessionID)
	return c, nil
}

// explain adds to the end of a wait why that took so long: there is no connection, or the last request failed.
func (c *Client) explain(cause, failed error) error {
	if failed != nil && c.Err() == nil && !errors.Is(cause, failed) {
		return fmt.Errorf("%w: %w", cause, failed)
	}
	return c.link.Explain(cause)
}

// ask repeats a question until there is an answer, or ctx or the client ends.
func ask[T any](ctx context.Context, c *Client, what string, question func() (T, error)) (T, error) {
	ctx, cancel := c.link.Scope(ctx)
	defer cancel()
	answer, err := insist(ctx, c, question)
	if err != nil {
		return *new(T), fmt.Errorf("zklock: %s: %w", what, err)
	}
	return answer, nil
}

// insist repeats a question as long as another try may help, or until ctx ends. If ctx ends, it does not wait for the try under way.
func insist[T any](ctx context.Context, c *Client, question func() (T, error)) (value T, err error) {
	for pace := retry.New(); ; {
		if _, err := c.link.AwaitSession(ctx); err != nil {
			return value, err
		}
		value, err = second.Do(ctx, c.link.Spawn, question, c.link.Explain)
		err = wire.Named(err)
		switch classify(err) {
		case done, missing, permanent:
			return value, err
		}
		if cause := retry.Pause(ctx, pace.NextBackOff()); cause != nil {
			return value, c.explain(cause, err)
		}
	}
}
