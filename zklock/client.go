package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/reaper"
	"github.com/tierlock/tierlock/internal/retry"
)

// A Client is the connection of this process to ZooKeeper: the session, its lease, and
// the reaper of what is left over. Use one per process and ensemble; it is safe for
// concurrent use.
type Client struct {
	options     options
	chroot      string      // which all paths are below, "" for none
	start       time.Time   // origin of the client's monotonic clock
	description description // what lock nodes say of this process

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc
	conn   *zk.Conn
	link   link // to the server: what is known of connection and session

	events     events
	parents    parents
	reaper     *reaper.Reaper[remains]
	stragglers stragglers
	renewals   renewals

	closing sync.Once

	mu     sync.Mutex // guards the fields below; never held across a client call
	closed bool
	tasks  sync.WaitGroup // every goroutine of the client
}

// A link is what a client knows of its connection and session: everything if it dials
// itself, less if the connection was made by somebody else.
type link interface {
	// session returns the newest session, nil while there is none.
	session() *session
	// err returns nil while a session is established and the connection stands.
	err() error
	// awaitConnection waits for that, or the end of ctx, whose cause it returns.
	awaitConnection(ctx context.Context) error
	// attend sees to it that the client ends soon after its connection, until unattend is
	// called.
	attend() (unattend func())
	// over reports whether somebody else has closed the connection, and ends the client then.
	over() bool
	// ask sends requests and waits for the answers, or the end of the connection.
	ask(...request) []answer
	// ordered reports whether they are executed in order and answered within one round trip,
	// and the answers tell transaction and session. Else only reads go together.
	ordered() bool
	// vouches reports whether s is still the session, as far as its lease does not
	// tell.
	vouches(s *session) bool
	// leased reports whether sessions have a lease.
	leased() bool
	// confirm asks, where there is none, whether the server knows of n or did a moment ago.
	confirm(n *Node) bool
	// forward takes the channel of a watch that was asked for.
	forward(<-chan zk.Event)
	// close ends the connection, if it is the client's own, and waits for the end of the
	// tasks, if that depends on nobody else.
	close()
}

// Dial connects to the ensemble of connect, "host:port,host:port/path", and waits for a
// session. Ports may be left out. If there is a path, all others are below it, those of locks
// and those of guarded writes; it is created like the parents of a lock. Dial keeps trying
// until ctx is done; the error then holds the cause of ctx and the last failure to connect. A
// bad connect string or option fails at once, and so do names that cannot be resolved, after
// 3 s at most.
//
// On any error nothing is left behind, with two exceptions when ctx ends while nobody
// answers: the look-up of a name may go on for its 3 s, and a server that has fallen
// silent after the handshake is waited for in the background, for a second.
//
// The client reconnects by itself and opens a new session when one has expired.
func Dial(ctx context.Context, connect string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	servers, chroot, err := parseConnect(connect)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	c := newClient(o)
	c.chroot = chroot
	if err := c.dial(ctx, servers); err != nil {
		return nil, fmt.Errorf("zklock: dial %s: %w", connect, err)
	}
	return c, nil
}

func newClient(o options) *Client {
	c := &Client{
		options:     o,
		start:       time.Now(),
		description: newDescription(o.label),
		events:      events{armed: make(map[string]map[*watcher]struct{})},
		stragglers:  stragglers{last: make(map[string]*attempt)},
		renewals:    renewals{underWay: make(map[string]*renewal), failed: make(map[string]int32)},
	}
	// The client outlives the context of Dial, which bounds only the wait.
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.reaper = newReaper(c)
	return c
}

// Close ends the session: every lock of the client is lost, its nodes vanish from the
// server, and whoever waits gets [ErrClosed]. While the server cannot be reached the
// nodes stay until the session times out there. Close returns within a few seconds and
// leaves no goroutine; for a client made by [Attach], see there. It may be called more than
// once and returns nil.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.end()
		waitFor(&c.parents.building, time.Second)
		c.link.close()
	})
	return nil
}

// end loses every lock and begins nothing new.
func (c *Client) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(ErrClosed)
	if s := c.link.session(); s != nil {
		s.End(ErrClosed)
	}
}

// scope returns a context that ends with ctx or the client, and its end.
func (c *Client) scope(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// spawn runs f as a task of the client, whose end Close waits for. It reports false when
// the client is closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(f)
	return true
}

// Done returns a channel that is closed when the client is closed. A client made by [Attach]
// is closed when its connection is, as soon as somebody waits for a lock or holds one.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// Err returns nil while the client is connected, and otherwise why it is not:
// [ErrClosed], or an error that wraps [zk.ErrNoServer] and the last failure to connect.
// Locks that are held at that time are suspended, not lost, for as long as their lease
// runs.
func (c *Client) Err() error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	return c.link.err()
}

// awaitSession waits until a session is established and returns it. The error is the cause of
// ctx together with the reason why there is no session.
func (c *Client) awaitSession(ctx context.Context) (*session, error) {
	for {
		if err := c.link.awaitConnection(ctx); err != nil {
			return nil, c.explain(err)
		}
		if s := c.link.session(); s != nil {
			return s, nil
		}
		// Expired since; the library is about to say that it is disconnected.
		if err := retry.Pause(ctx, time.Millisecond); err != nil {
			return nil, c.explain(err)
		}
	}
}

// explain adds to the end of a wait why ZooKeeper could not be reached, if that is so.
func (c *Client) explain(cause error) error {
	if problem := c.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// now is the client's monotonic clock.
func (c *Client) now() time.Duration { return time.Since(c.start) }

func (c *Client) margin(timeout time.Duration) time.Duration {
	if c.options.margin > 0 {
		return c.options.margin
	}
	return timeout / 3
}

// waitFor waits for g, but not longer than bound.
func waitFor(g *sync.WaitGroup, bound time.Duration) {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
