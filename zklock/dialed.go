package zklock

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/mutexbool"
)

// dialed is the link of a client that dials itself. Its sockets tell it of sessions and
// answers, the library's callback of everything else.
type dialed struct {
	client    *Client
	gone      <-chan zk.Event // closed when the library has stopped entirely
	mirror    *watchMirror
	connected mutexbool.Bool // a session is established and the connection stands
	dialing   mutexbool.Bool // the library is between two connections
	verify    mutexbool.Bool // the connection came back: held nodes want a look

	mu      sync.Mutex    // guards the fields below; never held across a client call
	current *session      // nil before the first and after an expiry
	socket  *socket       // the newest, nil before the first
	left    time.Duration // when the connection of the session ended, 0 while it stands
	problem error         // why there is no connection, nil before the first trouble
	closed  bool
	mute    bool // closed without a connection
}

// dial connects the client to one of the servers. On an error nothing is left.
func (c *Client) dial(ctx context.Context, servers []string) error {
	addresses, err := resolve(ctx, servers)
	if err != nil {
		return err
	}
	l := &dialed{client: c, mirror: newWatchMirror()}
	c.link = l // before the library starts and calls back
	conn, events, err := zk.Connect(addresses, c.options.sessionTimeout,
		zk.WithDialer(l.dial),
		zk.WithEventCallback(l.onEvent),
		zk.WithLogger(libraryLog{c.options.logger}),
		zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	c.conn, l.gone = conn, events
	c.spawn(l.keep)
	c.spawn(l.reopen)
	ready := make(chan error, 1)
	c.spawn(func() { ready <- c.authenticate(ctx) })
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = c.explain(context.Cause(ctx))
	}
	if err != nil {
		c.closeUntil(ctx)
	}
	return err
}

// closeUntil closes the client, but does not wait much longer than ctx for the server to
// answer that.
func (c *Client) closeUntil(ctx context.Context) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	select {
	case <-closed:
		return
	case <-ctx.Done():
	}
	moment := time.NewTimer(100 * time.Millisecond)
	defer moment.Stop()
	select {
	case <-closed:
	case <-moment.C:
	}
}

// authenticate waits for a session and presents the credentials. The library repeats
// them at each reconnect once they have been accepted.
func (c *Client) authenticate(ctx context.Context) error {
	for _, a := range c.options.auth {
		for pace := retry.New(); ; {
			if _, err := c.awaitSession(ctx); err != nil {
				return err
			}
			err := c.conn.AddAuth(a.scheme, a.secret)
			if err == nil {
				break
			}
			if classify(err) == permanent {
				return fmt.Errorf("auth %s: %w", a.scheme, err)
			}
			if err := retry.Pause(ctx, pace.NextBackOff()); err != nil { // the connection may be closed already
				return c.explain(err)
			}
		}
	}
	_, err := c.awaitSession(ctx)
	return err
}

// dial is the library's dialer.
func (l *dialed) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.client.ctx, timeout)
	defer cancel()
	conn, err := l.client.options.dial(ctx, network, address)
	if err != nil {
		l.trouble(dialError(address, err))
		return nil, err
	}
	s := newSocket(conn, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // close has killed the newest socket before, and does not see this one
		s.kill()
		return nil, ErrClosed
	}
	l.socket = s
	l.dialing.Clear()
	return s, nil
}

// onEvent is the library's callback: it must neither block nor call the library.
func (l *dialed) onEvent(ev zk.Event) {
	switch {
	case ev.Type != zk.EventSession:
		l.client.events.fire(ev)
	case ev.State == zk.StateHasSession:
		l.up()
		if s := l.session(); s != nil {
			s.ring()
		}
	case ev.State == zk.StateDisconnected:
		l.down()
		if l.isMute() {
			time.Sleep(time.Millisecond) // see close
		}
	case ev.State == zk.StateConnecting:
		l.dialing.Set()
	}
}

func (l *dialed) up() {
	l.mu.Lock()
	l.left = 0
	l.mu.Unlock()
	l.connected.Set()
	l.verify.Set()
}

// down is called after each attempt to connect, too.
func (l *dialed) down() {
	l.connected.Clear()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		l.left = max(l.client.now(), 1)
	}
}

func (l *dialed) isMute() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mute
}

func (l *dialed) awaitConnection(ctx context.Context) error { return l.connected.Wait(ctx) }

func (l *dialed) attend() (unattend func()) { return func() {} } // nobody else can close the connection

func (l *dialed) over() bool { return false }

func (l *dialed) vouches(*session) bool { return true } // the lease says it all

func (l *dialed) leased() bool { return true }

func (l *dialed) ordered() bool { return true }

func (l *dialed) confirm(n *Node) bool { return n.lossNow() == nil }

func (l *dialed) forward(<-chan zk.Event) {} // the callback sees all events

func (l *dialed) err() error {
	if l.connected.IsSet() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem == nil {
		return zk.ErrNoServer
	}
	return fmt.Errorf("%w: %w", zk.ErrNoServer, l.problem)
}

// trouble records why there is no connection.
func (l *dialed) trouble(err error) {
	l.client.options.logger.Debug("zklock: connection", "err", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = err
}

// close ends the session, for which it gives the server a second. Then it breaks the
// connection: the library would wait for up to two thirds of the session timeout.
//
// Without a connection there is no server to wait for, yet the library waits for its second
// (conn.go:321), unless it refuses its own farewell. That it does only between two
// connections (382), and only if the farewell is there in time. So it is brought there
// first; it does not get away again, because nothing is dialed any more; and the callback
// that comes right before holds it up for a moment.
func (l *dialed) close() {
	l.mu.Lock()
	l.closed = true
	l.mute = !l.connected.IsSet()
	mute := l.mute
	l.mu.Unlock()
	if mute {
		l.kill()
		// The client's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		l.dialing.Wait(ctx)
		cancel()
	}
	l.client.conn.Close()
	l.kill()
	for range l.gone { // closed as the last act of the library
	}
	l.client.tasks.Wait()
}

// closing reports whether close has begun.
func (l *dialed) closing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// kill breaks the connection.
func (l *dialed) kill() {
	l.mu.Lock()
	socket := l.socket
	l.mu.Unlock()
	if socket != nil {
		socket.kill()
	}
}

// libraryLog gives the library's messages to the client's logger.
type libraryLog struct{ logger *slog.Logger }

func (l libraryLog) Printf(format string, args ...any) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) { // a log line belongs to no request
		l.logger.Debug("zklock: client library", "msg", fmt.Sprintf(format, args...))
	}
}
