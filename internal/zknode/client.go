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

// A Client is the connection of this process to ZooKeeper. It has the session, its lease, and the reaper, which deletes leftover nodes. Use
// one Client per process and ensemble. Its methods may be called concurrently.
type Client struct {
	options options
	chroot  string      // all paths are below this path; "" if there is none
	content second.Head // the content of lock nodes, which describes this process
	link    *link.Link
	flush   func() // makes the logger write what was logged so far

	plain     atomic.Bool // the server does not support containers (before 3.5)
	reaper    reaper
	abandoned sync.Map // for each path, the last attempt that continues without its caller: a channel that is closed at its end
	renewals  renewals
	refusals  notice.Refusals // of acquisitions that were refused while there was a session

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

// The method log returns the log for events of the locks of this client.
func (c *Client) log() notice.Log { return notice.Log{Logger: c.options.Logger, Package: "zklock"} }

// Close ends the session. Every lock of the client is lost, its nodes disappear from the server, and waiters get [ErrClosed]. While the
// server cannot be reached, the nodes stay until the session times out there. Close returns within a few seconds, and leaves no goroutine
// except one that a logger blocks. For a client made by [Attach], see there. Close may be called more than once, and returns nil.
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

// Err returns nil while the client is connected. Otherwise it returns [ErrClosed], or an error that wraps [zk.ErrNoServer] and the last
// failure to connect. Until their lease ends, held locks are then suspended, and not lost.
func (c *Client) Err() error { return c.link.Err() }

// Dial connects to the ensemble of connect, "host:port,host:port/path", and blocks until it has a session or ctx ends; zklock.Dial
// documents the path and the errors.
//
// The client reconnects by itself and opens a new session after one has expired. It resolves names whenever it connects, and tries all
// addresses of a name; if that fails or takes longer than a second, it tries the addresses that it found before.
//
// After an error nothing has to be closed. There are two exceptions when ctx ends while no server answers. The look-up of a name may
// continue for up to 3 s, and a goroutine waits for up to a second for a server that stopped answering after the handshake.
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

// dial connects the client to one of the servers, presents the credentials, and waits for a session. With a lazy start, this happens in the
// background. After an error nothing has to be closed.
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

// closeUntil closes the client. When ctx ends, it stops waiting for the answer of the server after a tenth of a second.
func (c *Client) closeUntil(ctx context.Context) {
	closing, leave := context.WithCancel(context.Background())
	defer leave()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(100*time.Millisecond, leave) })()
	link.WaitFor(closing, func() { c.Close() })
}

// Attach returns a client over a connection that the program has made. It is weaker than [Dial]. A lock counts as lost when the session has
// changed or its node was deleted, but there is no lease. Therefore, while the server is unreachable, the holder is not notified that it
// may have lost the lock. [Node.Lost] is late by up to one read of the node. The library's problems with servers that hang or are broken
// remain. [WithSessionTimeout] should repeat the timeout of conn. Options about dialing are ignored.
//
// A request of the library returns only when the answer has come. Therefore requests that need an order are sent one after the other. An
// acquisition takes two round trips. If the path is missing, it takes three more, and one for each node of the path.
//
// The library does not report that conn was closed, so the client has to ask the library. While a goroutine waits for a lock or holds one,
// the client closes a tenth of a second after conn. Otherwise it closes as soon as a goroutine waits for a lock or holds one. Asking sends
// no request.
//
// Close closes the client, but not the connection. Release all locks before that, because otherwise their nodes stay as long as the session
// of conn. A call that a server does not answer ends with its connection, and its goroutine ends with the call. Close does not wait for
// these calls.
func Attach(conn *zk.Conn, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: attach: %w", err)
	}
	c := newClient(o)
	c.link.Attach(conn, conn.SessionID)
	return c, nil
}

// explain adds a reason to cause, the reason for the end of a wait. The wait took so long because there is no connection, or because the
// last request failed.
func (c *Client) explain(cause, failed error) error {
	if failed != nil && c.Err() == nil && !errors.Is(cause, failed) {
		return fmt.Errorf("%w: %w", cause, failed)
	}
	return c.link.Explain(cause)
}

// ask calls question until there is an answer, or until ctx or the client ends.
func ask[T any](ctx context.Context, c *Client, what string, question func() (T, error)) (T, error) {
	ctx, cancel := c.link.Scope(ctx)
	defer cancel()
	answer, err := insist(ctx, c, question)
	if err != nil {
		return *new(T), fmt.Errorf("zklock: %s: %w", what, err)
	}
	return answer, nil
}

// insist calls question as long as another try may help, or until ctx ends. When ctx ends, it does not wait for the present try.
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
