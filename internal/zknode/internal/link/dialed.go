package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/mutexbool"
)

// A dialed is the transport of a link that makes its own connections. Its sockets report sessions and answers, and the library's callback
// reports everything else.
type dialed struct {
	link      *Link
	servers   *servers
	gone      <-chan zk.Event // closed when the library has stopped entirely
	seen      atomic.Int64    // the zxid of the newest reply; all events up to it have arrived
	connected mutexbool.Bool  // a session is established and the connection exists
	dialing   mutexbool.Bool  // the library is between two connections
	verify    mutexbool.Bool  // the connection was made again, and the held nodes have to be checked
	// Paths that are known to exist; not all such paths are remembered. The value of a path is the set of the [kinds] of transactions that the
	// servers refused the last time.
	paths    sync.Map
	noted    atomic.Int64 // the number of entries in paths
	oneByOne atomic.Bool  // reads are not combined, because the servers do not support that, or because an answer was too long

	keepsWatches atomic.Bool // the servers cannot remove watches

	// These fields are written by the goroutine in which the library connects, shakes hands and reports both.
	current atomic.Pointer[Session] // nil before the first session and after an expiry
	socket  atomic.Pointer[socket]  // the newest socket; nil before the first one
	left    time.Duration           // since when there is no connection; 0 while there is one; only this goroutine reads it

	problem atomic.Pointer[error] // why there is no connection
	longest atomic.Int64          // the size of the longest answer to one read, in bytes
}

// Dial makes the library connect to one of the servers, and connect again after each loss of the connection. After an error nothing has to
// be closed. The caller calls [Link.Present] next. A link that starts lazily looks up a name only when it dials the server.
func (l *Link) Dial(ctx context.Context, names []string) error {
	d := &dialed{link: l, servers: &servers{lookUp: l.config.LookUp, known: make(map[string]found), logger: l.config.Logger}, left: 1}
	begun := fmt.Errorf("%w: no answer yet from %s", zk.ErrNoServer, strings.Join(names, ", "))
	d.problem.Store(&begun)
	if !l.config.Lazy {
		if err := d.servers.find(ctx, names); err != nil {
			return err
		}
	}
	l.transport = d // set before the library starts and calls back
	judgeLibrary(l.config.Logger)
	says := slog.NewLogLogger(l.config.Logger.Handler(), slog.LevelDebug)
	says.SetPrefix("zklock: client library: ")
	conn, events, err := zk.Connect(names, l.config.TTL,
		zk.WithHostProvider(d.servers),
		zk.WithDialer(d.dial),
		zk.WithEventCallback(d.onEvent),
		zk.WithLogger(says),
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

var errNotPresented = fmt.Errorf("%w: the credentials have not been presented yet", zk.ErrNoServer)

// Present presents the credentials, and then waits for a session. After that, the library presents the credentials first at each reconnect.
// Until Present is done, no caller gets a session: without credentials, servers would refuse requests as forbidden that they would grant
// later.
//
// Present tries until ctx ends. It also ends when the credentials are refused. The exception is a link that starts lazily: its waiters
// learn of the refusal from [Link.Err].
func (l *Link) Present(ctx context.Context) error {
	socket := &l.transport.(*dialed).socket
	for pace, left := retry.New(), l.config.Auth; len(left) > 0; {
		if err := l.awaitConnection(ctx); err != nil {
			return l.Explain(err)
		}
		on := socket.Load()
		_, err := second.Do(ctx, l.Spawn, func() (struct{}, error) {
			return struct{}{}, l.Conn.AddAuth(left[0].Scheme, left[0].Secret)
		}, l.Explain)
		refused := errors.Is(err, zk.ErrAuthFailed)
		switch {
		case err == nil:
			if on == socket.Load() { // otherwise the library may have made the new connection before it knew the credentials
				left = left[1:]
			}
			continue
		case refused || ctx.Err() != nil:
			err = fmt.Errorf("auth %s: %w", left[0].Scheme, err)
		}
		if ctx.Err() != nil || refused && !l.config.Lazy {
			return err
		}
		if refused && l.refused.Swap(&err) == nil {
			l.config.Logger.Warn("zklock: no lock can be acquired", "err", err)
		}
		l.heard.Set()
		retry.Pause(ctx, pace.NextBackOff()) // the pause also spares the servers, which close the connection after a refusal
	}
	l.admitted.Set()
	_, err := l.AwaitSession(ctx)
	l.heard.Set()
	return err
}

// The method dial is the library's dialer.
func (l *dialed) dial(network, server string, timeout time.Duration) (net.Conn, error) {
	conn, err := l.connect(network, server, timeout)
	if err != nil {
		l.trouble(err)
		return nil, err
	}
	s := newSocket(conn, server, l)
	l.dialing.Clear()
	l.socket.Store(s)
	if l.link.ctx.Err() != nil { // checked last: Close may have killed the newest socket before this one was stored
		s.kill()
		return nil, second.ErrClosed
	}
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
	conn, err := whileWanted(ctx, func() (net.Conn, error) { return l.link.config.Dial(ctx, network, address) })
	if err != nil {
		return nil, dialError(server, err, stale)
	}
	return l.secure(conn, server)
}

// overtime is the additional time that the link waits for code of the program after the context of that code has ended.
const overtime = 100 * time.Millisecond

// whileWanted calls connect, which is code of the program or calls such code. When ctx has ended, neither the library's loop nor Close
// waits for connect. A connection that is made after that is closed.
func whileWanted(ctx context.Context, connect func() (net.Conn, error)) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	came := make(chan result)
	left := make(chan struct{})
	go func() {
		conn, err := connect()
		select {
		case came <- result{conn, err}:
		case <-left:
			if conn != nil {
				conn.Close()
			}
		}
	}()
	select {
	case r := <-came:
		return r.conn, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-came:
		return r.conn, r.err
	case <-time.After(overtime):
		close(left)
		return nil, fmt.Errorf("the program's dialer is still running: %w", context.Cause(ctx))
	}
}

// onEvent is the library's callback. It must not block, and it must not call the library.
func (l *dialed) onEvent(ev zk.Event) {
	switch {
	case ev.Type != zk.EventSession:
		l.link.Events.fire(ev)
	case ev.State == zk.StateHasSession:
		l.left = 0
		l.link.Notice.Reach(true) // called before the waiters for the connection continue
		l.link.Events.lapse()     // called before any request on this connection can set a watch
		l.connected.Set()
		l.verify.Set()
	case ev.State == zk.StateDisconnected: // the library also reports this state after each attempt to connect
		l.connected.Clear()
		l.link.Notice.Reach(false)
		switch {
		case l.left == 0:
			l.left = max(l.link.Now(), 1)
		case l.link.ctx.Err() != nil:
			time.Sleep(farewellWithin)
		}
	case ev.State == zk.StateConnecting:
		l.dialing.Set()
	}
}

func (l *dialed) Session() *Session { return l.current.Load() }

func (l *dialed) awaitConnection(ctx context.Context) error { return l.connected.Wait(ctx) }

func (l *dialed) PollClose() (stopPolling func()) { return func() {} } // the program cannot close the connection

func (l *dialed) Closed() bool { return false }

func (l *dialed) Leased() bool { return true }

func (l *dialed) disconnected() error {
	if l.connected.IsSet() {
		return nil
	}
	return *l.problem.Load()
}

// trouble records why there is no connection.
func (l *dialed) trouble(err error) {
	l.link.config.Logger.Debug("zklock: connection", "err", err)
	problem := fmt.Errorf("%w: %w", zk.ErrNoServer, err)
	l.problem.Store(&problem)
	l.link.heard.Set()
}

// Close ends the session, and waits up to a second for the server's answer. Then it breaks the connection, because the library would wait
// for up to two thirds of the session timeout.
//
// Without a connection there is no server to wait for. The library still waits for a second, unless it refuses its own farewell request. It
// refuses the farewell only between two connections, and only if the farewell comes early enough. Therefore Close first breaks the
// connection, and nothing is dialed any more. The library then calls the callback, which blocks it for [farewellWithin].
func (l *dialed) Close() {
	if !l.connected.IsSet() {
		l.kill()
		// Close uses a context of its own, since the client's context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		l.dialing.Wait(ctx)
		cancel()
	}
	l.link.Conn.Close()
	l.kill()
	for range l.gone { // closing this channel is the last act of the library
	}
	l.link.tasks.Wait()
}

// farewellWithin is the time that the library has to queue its own farewell while its loop waits in the callback. Nothing shows when the
// farewell is queued. Conn.Close ends the loop's pause and then queues the farewell, in one call. The library exports neither the queue,
// nor its length, nor the numbers of requests.
//
// There are two alternatives, and both are worse. If the library's Close ran in a background goroutine, that goroutine would outlive our
// Close by a second. A server of our own that answers farewells would be dialed only after the pause, which takes another second. The value
// is therefore a guess: a thousand times what queueing takes. If it is too short, there is no harm: Close returns a second later.
const farewellWithin = time.Millisecond

// The method kill breaks the connection.
func (l *dialed) kill() {
	if s := l.socket.Load(); s != nil {
		s.kill()
	}
}

// handshakeTimeout limits the wait for a server that accepts a connection and then does not answer. It is short enough to try several
// servers within one session timeout.
func (l *dialed) handshakeTimeout() time.Duration {
	return min(max(l.link.Timeout()/6, 100*time.Millisecond), 2*time.Second)
}

// established is called by the socket at the end of a handshake, before the library processes the answer. The handshake was sent at sentAt.
func (l *dialed) established(id int64, timeout, sentAt time.Duration) (*Session, error) {
	c := l.link
	if timeout <= 0 { // 0 also means that a session that was to be resumed has ended
		l.expired()
		return nil, fmt.Errorf("the server granted a session timeout of %v", timeout)
	}
	margin := c.Margin(timeout)
	var refusal error
	if margin > timeout/2 {
		refusal = fmt.Errorf("the server granted a session timeout of %v; the lease margin of %v is more than half of it",
			timeout, margin)
	}
	old := l.current.Load()
	if old != nil && old.ID == id {
		old.resume(timeout, timeout-margin) // also if this side refuses the timeout, since the server already uses it
		return old, refusal
	}
	if refusal != nil {
		return nil, refusal
	}
	// It began with a write, so only its lease decides how long it lasts.
	s := newSession(c, id, timeout, sentAt, timeout-margin, func() bool { return true })
	l.current.Store(s)
	if old != nil {
		c.Notice.End(old.String())
		old.End(zk.ErrSessionExpired)
	}
	c.Notice.Begin(s.String())
	l.warnOfTick(s)
	if c.ctx.Err() != nil { // the client is closed: Close may have looked for a session before this one was stored
		s.End(second.ErrClosed)
	}
	return s, nil
}

// introduce returns the handshake to send instead of the library's handshake. The library's handshake does not say which transactions the
// client has seen.
//
// If there was no connection for the session timeout, introduce asks for a new session, since all holds are lost by then. A server that
// receives the requests of this client, but whose answers get lost, would otherwise extend the old session at each attempt to resume it,
// and keep its nodes in the queue.
//
// A server whose data was lost or restored refuses a client that has seen a later transaction, every time. In that case the handshake
// finally says that the client has seen none. Such a server may still know the old session, with nodes that the client has deleted since.
// While that session lives, no process would delete these nodes again. Therefore that handshake asks for a new session as well.
func (l *dialed) introduce(handshake []byte, now time.Duration) []byte {
	d := wire.Decoder{Rest: wire.Body(handshake)}
	q := d.ConnectRequest()
	if s := l.Session(); s != nil {
		switch away, timeout := now-l.left, s.Negotiated(); {
		case away > 4*timeout:
			l.seen.Store(0)
			fallthrough
		case away > timeout:
			q.Session, q.Password = 0, make([]byte, wire.PasswordLen)
		}
	}
	q.LastZxid = l.seen.Load()
	var e wire.Encoder
	e.ConnectRequest(q)
	return wire.Frame(e)
}

// The method expired is called when a server's answer to the handshake says that the session has expired.
func (l *dialed) expired() {
	if old := l.current.Swap(nil); old != nil {
		l.link.Notice.End(old.String())
		old.End(zk.ErrSessionExpired)
	}
	l.seen.Store(0)
}

// warnOfTick warns if the session timeout may be too short for the lease. The lease assumes that the servers' tick is at most a quarter of
// the timeout. Servers do not report their tick. Nearly all servers use 2 s, and by default a server grants no timeout below two ticks.
func (l *dialed) warnOfTick(s *Session) {
	const usualTick = 2 * time.Second
	timeout := s.Negotiated()
	if raised := timeout > l.link.config.TTL; raised || timeout < 4*usualTick {
		l.link.config.Logger.Warn("zklock: the session timeout may be too short: during a network partition the lease may end too late; "+
			"it should be four times tickTime",
			"granted", timeout, "asked for", l.link.config.TTL, "safe with tickTime up to", timeout/4)
	}
}

// keep proves to the server and to this process that the session lives. It sends a sync once in each eighth of the session timeout. While a
// node is queued or held, a write follows the sync. Without the sync, a node that is created after a quiet time could not be granted by its
// create alone; see [proof].
func (l *dialed) keep() {
	if l.awaitConnection(l.link.ctx) != nil { // the pace depends on the granted timeout, and not on the requested one
		return
	}
	timer := time.NewTimer(halfTick(l.link.Timeout()))
	for {
		select {
		case <-l.link.ctx.Done():
			return
		case <-timer.C:
		}
		synced := l.disconnected() == nil && l.sync()
		timer.Reset(halfTick(l.link.Timeout())) // set before the write, so that a slow write does not delay the next sync
		if synced {
			l.prove()
			l.removeWatches()
		}
	}
}

// mostRemoved is the number of watches that are removed at the same time. Each removal is a request.
const mostRemoved = 256

// removeWatches removes the watches that were not needed since its last call. Servers older than 3.5 close the connection after that
// request, so for these it does nothing.
func (l *dialed) removeWatches() {
	if l.keepsWatches.Load() {
		return
	}
	unused := l.link.Events.unused(mostRemoved)
	if len(unused) == 0 {
		return
	}
	var requests []Request
	for _, path := range slices.Sorted(maps.Keys(unused)) {
		requests = append(requests, removal(path))
	}
	l.link.Spawn(func() {
		l.Ask(requests...)
		l.link.Events.removed(unused) // after an error, too: it means that the connection has ended, and the watches with it
	})
}

func (l *dialed) sync() bool {
	_, err := l.link.Conn.Sync("/")
	return err == nil
}

// The method prove sends a write that changes nothing. If no node is queued or held, it sends nothing.
func (l *dialed) prove() {
	if s := l.Session(); s != nil {
		for n := range s.Contenders() {
			if !n.IsLost() { // a lost node stays registered until its owner gives it up, and may already be deleted
				n.Prove()
				return
			}
		}
	}
}

// reopen makes the library send a request whenever the connection is back. Batches wait for that request; see [socket]. reopen sends it
// before anything else: a batch that it waited for could itself wait for that request.
func (l *dialed) reopen() {
	for l.verify.Wait(l.link.ctx) == nil {
		l.verify.Clear()
		var members map[Member]bool // the nodes from before the connection came; newer nodes need no check
		if s := l.Session(); s != nil {
			members = s.Contenders()
		}
		l.sync()
		l.link.Spawn(func() {
			l.prove() // together with the answer to the handshake, the answer to this write proves the lease
			for n, held := range members {
				if held {
					n.Check()
				}
			}
		})
	}
}

// secure adds TLS to a connection to the server, if the link uses TLS. After an error the connection is closed.
func (l *dialed) secure(conn net.Conn, server string) (net.Conn, error) {
	cfg := l.link.config.TLS
	if cfg == nil {
		return conn, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(server) // cannot fail: the connect string was checked
	}
	ctx, cancel := context.WithTimeout(l.link.ctx, l.handshakeTimeout())
	defer cancel()
	secured := tls.Client(conn, cfg)
	_, err := whileWanted(ctx, func() (net.Conn, error) { return nil, secured.HandshakeContext(ctx) })
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %s%w", server, tlsAdvice(err), err)
	}
	return secured, nil
}
