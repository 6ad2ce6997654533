package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/mutexbool"
)

// A Client is the connection of this process to ZooKeeper: the session, its lease, and
// the reaper of what is left over. Use one per process and ensemble; it is safe for
// concurrent use.
type Client struct {
	options options
	start   time.Time // origin of the client's monotonic clock
	owner   owner     // what lock nodes say of this process

	ctx    context.Context // ends, with cause ErrClosed, at Close
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // every goroutine of the client
	conn   *zk.Conn
	gone   <-chan zk.Event // closed when the library has stopped entirely

	mirror     *watchMirror
	events     events
	parents    parents
	reaper     reaper
	stragglers stragglers
	connected  mutexbool.Bool // a session is established and the connection stands
	verify     mutexbool.Bool // the connection came back: held nodes want a look

	mu      sync.Mutex // guards the fields below; never held across a client call
	session *session   // the newest, nil before the first and after an expiry
	closed  bool
	socket  *socket // the newest
	problem error   // why there is no connection, nil before the first trouble
}

// Dial connects to the ensemble that servers ("host:port", the port may be left out)
// belong to and waits for a session. It keeps trying until ctx is done; the error then
// holds the cause of ctx and the last failure to connect. Bad servers or options fail
// at once. On any error nothing is left behind.
//
// The client reconnects by itself and opens a new session when one has expired.
func Dial(ctx context.Context, servers []string, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	addresses, err := addresses(servers)
	if err != nil {
		return nil, fmt.Errorf("zklock: dial: %w", err)
	}
	c := newClient(o)
	if err := c.connect(ctx, addresses); err != nil {
		c.Close()
		return nil, fmt.Errorf("zklock: dial %v: %w", servers, err)
	}
	return c, nil
}

// addresses checks the servers and completes their ports. A single one is listed twice:
// the library pauses for a second after each round of its list, so a lone address would
// cost that at every reconnect (dnshostprovider.go:122).
func addresses(servers []string) ([]string, error) {
	if len(servers) == 0 {
		return nil, errors.New("no servers")
	}
	var list []string
	for _, server := range zk.FormatServers(servers) {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", server, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
			return nil, fmt.Errorf("server %q: want host:port", server)
		}
		list = append(list, server)
	}
	if len(list) == 1 {
		list = append(list, list[0])
	}
	return list, nil
}

func newClient(o options) *Client {
	c := &Client{
		options:    o,
		start:      time.Now(),
		owner:      newOwner(o.label),
		mirror:     newWatchMirror(),
		events:     events{armed: make(map[string]map[*watcher]struct{})},
		stragglers: stragglers{last: make(map[string]*attempt)},
	}
	// The client outlives the context of Dial, which bounds only the wait.
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.reaper.client = c
	return c
}

func (c *Client) connect(ctx context.Context, addresses []string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	conn, events, err := zk.Connect(addresses, c.options.sessionTimeout,
		zk.WithDialer(c.dial),
		zk.WithEventCallback(c.onEvent),
		zk.WithLogger(libraryLog{c.options.logger}),
		zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	c.conn, c.gone = conn, events
	c.spawn(c.keep)
	ready := make(chan error, 1)
	c.spawn(func() { ready <- c.authenticate(ctx) })
	select {
	case err = <-ready:
		return err
	case <-ctx.Done():
		return c.explain(context.Cause(ctx))
	}
}

// authenticate waits for a session and presents the credentials. The library repeats
// them at each reconnect once they have been accepted.
func (c *Client) authenticate(ctx context.Context) error {
	for _, a := range c.options.auth {
		for {
			if _, err := c.await(ctx); err != nil {
				return err
			}
			err := c.conn.AddAuth(a.scheme, a.secret)
			if err == nil {
				break
			}
			if classify(err) == permanent {
				return fmt.Errorf("auth %s: %w", a.scheme, err)
			}
		}
	}
	_, err := c.await(ctx)
	return err
}

// Close ends the session: every lock of the client is lost, its nodes vanish from the
// server, and whoever waits gets [ErrClosed]. While the server cannot be reached the
// nodes stay until the session times out there. Close returns within a few seconds and
// leaves no goroutine. It may be called more than once and returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	session := c.session
	c.mu.Unlock()

	c.cancel(ErrClosed)
	if session != nil {
		session.end(ErrClosed)
	}
	if c.conn != nil {
		c.parents.await(time.Second)
		c.conn.Close()
		c.killSocket()
		for range c.gone { // closed as the last act of the library
		}
	}
	c.tasks.Wait()
	return nil
}

// killSocket breaks the present connection, for which the library would otherwise wait
// up to two thirds of the session timeout.
func (c *Client) killSocket() {
	c.mu.Lock()
	socket := c.socket
	c.mu.Unlock()
	if socket != nil {
		socket.kill()
	}
}

// spawn runs f as a task of the client, which ends before Close returns. It reports
// false when the client is closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.tasks.Go(f)
	return true
}

// Done returns a channel that is closed when the client is closed.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// Err returns nil while the client is connected, and otherwise why it is not:
// [ErrClosed], or the last failure to connect. Locks that are held at that time are
// suspended, not lost, for as long as their lease runs.
func (c *Client) Err() error {
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if c.connected.IsSet() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == nil {
		return zk.ErrNoServer
	}
	return fmt.Errorf("%w: %w", zk.ErrNoServer, c.problem)
}

// explain adds to the end of a wait why ZooKeeper could not be reached, if that is so.
func (c *Client) explain(cause error) error {
	if problem := c.Err(); problem != nil && !errors.Is(cause, problem) {
		return fmt.Errorf("%w: %w", cause, problem)
	}
	return cause
}

// trouble records why there is no connection.
func (c *Client) trouble(err error) {
	c.options.logger.Debug("zklock: connection", "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problem = err
}

// now is the client's monotonic clock.
func (c *Client) now() time.Duration { return time.Since(c.start) }

func (c *Client) margin(timeout time.Duration) time.Duration {
	if c.options.margin > 0 {
		return c.options.margin
	}
	return timeout / 3
}
