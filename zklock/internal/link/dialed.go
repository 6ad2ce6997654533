package link

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
)

// dialed is the transport of a link that dials itself. Its sockets tell it of sessions and
// answers, the library's callback of everything else.
type dialed struct {
	link      *Link
	servers   *servers
	gone      <-chan zk.Event // closed when the library has stopped entirely
	mirror    *watchMirror
	connected mutexbool.Bool // a session is established and the connection stands
	dialing   mutexbool.Bool // the library is between two connections
	verify    mutexbool.Bool // the connection came back: held nodes want a look

	mu      sync.Mutex    // guards the fields below; never held across a client call
	current *Session      // nil before the first and after an expiry
	socket  *socket       // the newest, nil before the first
	left    time.Duration // when the connection of the session ended, 0 while it stands
	problem error         // why there is no connection, nil before the first trouble
	closed  bool
	mute    bool // closed without a connection
}

// Dial has the library connect to one of the servers, and goes on trying. On an error nothing is
// left.
func (l *Link) Dial(ctx context.Context, names []string) error {
	d := &dialed{link: l, servers: newServers(l.config), mirror: newWatchMirror()}
	if err := d.servers.find(ctx, names); err != nil {
		return err
	}
	l.transport = d // before the library starts and calls back
	conn, events, err := zk.Connect(names, l.config.SessionTimeout,
		zk.WithHostProvider(d.servers),
		zk.WithDialer(d.dial),
		zk.WithEventCallback(d.onEvent),
		zk.WithLogger(libraryLog{l.config.Logger}),
		zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	l.Conn, d.gone = conn, events
	l.Spawn(d.keep)
	l.Spawn(d.reopen)
	l.Spawn(func() { l.Notice.Run(l.ctx) })
	return nil
}

// dial is the library's dialer.
func (l *dialed) dial(network, server string, timeout time.Duration) (net.Conn, error) {
	conn, err := l.connect(network, server, timeout)
	if err != nil {
		l.trouble(err)
		return nil, err
	}
	s := newSocket(conn, server, l)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // close has killed the newest socket before, and does not see this one
		s.kill()
		return nil, second.ErrClosed
	}
	l.socket = s
	l.dialing.Clear()
	return s, nil
}

// connect dials the next address of the server.
func (l *dialed) connect(network, server string, timeout time.Duration) (net.Conn, error) {
	address, stale, err := l.servers.address(l.link.ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.link.ctx, timeout)
	defer cancel()
	conn, err := l.link.config.Dial(ctx, network, address)
	if err != nil {
		return nil, dialError(server, err, stale)
	}
	return l.secure(conn, server)
}

// onEvent is the library's callback: it must neither block nor call the library.
func (l *dialed) onEvent(ev zk.Event) {
	switch {
	case ev.Type != zk.EventSession:
		l.link.Events.fire(ev)
	case ev.State == zk.StateHasSession:
		l.up()
		if s := l.Session(); s != nil {
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
	l.link.Notice.Reach(true) // before anybody who waits for it goes on
	l.connected.Set()
	l.verify.Set()
}

// down is called after each attempt to connect, too.
func (l *dialed) down() {
	l.connected.Clear()
	l.link.Notice.Reach(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		l.left = max(l.link.Now(), 1)
	}
}

func (l *dialed) isMute() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mute
}

func (l *dialed) Session() *Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}

func (l *dialed) awaitConnection(ctx context.Context) error { return l.connected.Wait(ctx) }

func (l *dialed) Attend() (unattend func()) { return func() {} } // nobody else can close the connection

func (l *dialed) Over() bool { return false }

func (l *dialed) vouches(*Session) bool { return true } // the lease says it all

func (l *dialed) Leased() bool { return true }

func (l *dialed) Ordered() bool { return true }

func (l *dialed) disconnected() error {
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
	l.link.config.Logger.Debug("zklock: connection", "err", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = err
}

// Close ends the session, for which it gives the server a second. Then it breaks the
// connection: the library would wait for up to two thirds of the session timeout.
//
// Without a connection there is no server to wait for, yet the library waits for its second
// (conn.go:321), unless it refuses its own farewell. That it does only between two
// connections (382), and only if the farewell is there in time. So it is brought there
// first; it does not get away again, because nothing is dialed any more; and the callback
// that comes right before holds it up for a moment.
func (l *dialed) Close() {
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
	l.link.Conn.Close()
	l.kill()
	for range l.gone { // closed as the last act of the library
	}
	l.link.tasks.Wait()
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
