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

// dialed is the transport of a link that dials itself. Its sockets report sessions and answers, and the library's callback reports
// everything else.
type dialed struct {
	link      *Link
	servers   *servers
	gone      <-chan zk.Event // closed when the library has stopped entirely
	seen      atomic.Int64    // the zxid of the newest reply: no event up to it is outstanding
	connected mutexbool.Bool  // a session is established and the connection stands
	dialing   mutexbool.Bool  // the library is between two connections
	verify    mutexbool.Bool  // the connection came back: held nodes want a look
	paths     sync.Map        // some of those that are known to be there, each with the kinds of transactions that were refused last
	noted     atomic.Int64    // how many were
	oneByOne  atomic.Bool     // nothing is read together: the servers know no request for that, or have answered too much

	keepsWatches atomic.Bool // the servers cannot remove watches

	// The goroutine in which the library connects, shakes hands and reports both writes these.
	current atomic.Pointer[Session] // nil before the first and after an expiry
	socket  atomic.Pointer[socket]  // the newest, nil before the first
	left    time.Duration           // since when there is no connection, 0 while it stands; read there, too

	problem atomic.Pointer[error] // why there is no connection
	longest atomic.Int64          // of what was read, in bytes
}

// Dial makes the library connect to one of the servers, and repeat that. After an error nothing is left. The caller calls [Link.Present]
// next. A link that starts lazily looks names up only when it dials them.
func (l *Link) Dial(ctx context.Context, names []string) error {
	d := &dialed{link: l, servers: &servers{lookUp: l.config.LookUp, known: make(map[string]found), logger: l.config.Logger}, left: 1}
	begun := fmt.Errorf("%w: no answer yet from %s", zk.ErrNoServer, strings.Join(names, ", "))
	d.problem.Store(&begun)
	if !l.config.Lazy {
		if err := d.servers.find(ctx, names); err != nil {
			return err
		}
	}
	l.transport = d // before the library starts and calls back
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

// Present presents the credentials, which the library from then on presents first at each reconnect. Then it waits for a session. Until
// then no caller gets one, because servers would finally refuse requests that they grant later. It tries until ctx ends. A refusal ends it,
// too, unless the link starts lazily: then waiters learn of the refusal from [Link.Err].
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
			if on == socket.Load() { // else there may be a connection since, made before the library knew what to repeat
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
		retry.Pause(ctx, pace.NextBackOff()) // also for the sake of the servers: they hang up with a refusal
	}
	l.admitted.Set()
	_, err := l.AwaitSession(ctx)
	l.heard.Set()
	return err
}

// dial is the library's dialer.
func (l *dialed) dial(network, server string, timeout time.Duration) (net.Conn, error) {
	conn, err := l.connect(network, server, timeout)
	if err != nil {
		l.trouble(err)
		return nil, err
	}
	s := newSocket(conn, server, l)
	l.dialing.Clear()
	l.socket.Store(s)
	if l.link.ctx.Err() != nil { // asked last: Close may have killed the newest socket before, without seeing this one
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

// overtime is how much longer the link waits for code of the program after the context of that code has ended.
const overtime = 100 * time.Millisecond

// whileWanted calls connect, which is code of the program or calls such code. Neither the library's loop nor Close waits for it when ctx
// has ended. A connection that comes too late is closed.
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

// onEvent is the library's callback: it must neither block nor call the library.
func (l *dialed) onEvent(ev zk.Event) {
	switch {
	case ev.Type != zk.EventSession:
		l.link.Events.fire(ev)
	case ev.State == zk.StateHasSession:
		l.left = 0
		l.link.Notice.Reach(true) // before anybody who waits for it goes on
		l.link.Events.lapse()     // before anything is asked on this connection
		l.connected.Set()
		l.verify.Set()
	case ev.State == zk.StateDisconnected: // also after each attempt to connect
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

// Close ends the session, for which it gives the server a second. Then it breaks the
// connection: the library would wait for up to two thirds of the session timeout.
//
// Without a connection there is no server to wait for. The library still waits for a second, unless it refuses its own farewell request.
// It refuses the farewell only between two connections, and only if the farewell comes early enough. Close therefore first breaks the
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
	for range l.gone { // closed as the last act of the library
	}
	l.link.tasks.Wait()
}

// farewellWithin is how long the library has to queue its own farewell while its loop waits in the callback. Nothing shows that it is
// queued: Conn.Close ends the loop's pause and then queues the farewell, in one call, and the library exports neither the queue nor its
// length nor the numbers of requests. A Close in a background goroutine would outlive ours by a second. A server of our own that answers
// farewells would be dialed only after the pause, which takes another second. The value is therefore a guess, a thousand times what
// queueing takes. If it is too short, there is no harm: Close returns a second later.
const farewellWithin = time.Millisecond

// kill breaks the connection.
func (l *dialed) kill() {
	if s := l.socket.Load(); s != nil {
		s.kill()
	}
}

// handshakeTimeout bounds the wait for a server that accepts a connection and then does not answer. handshakeTimeout leaves time to try
// several servers within one session timeout.
func (l *dialed) handshakeTimeout() time.Duration {
	return min(max(l.link.Timeout()/6, 100*time.Millisecond), 2*time.Second)
}

// established is called by the socket at the end of a handshake that was sent at sentAt, before the library processes it.
func (l *dialed) established(id int64, timeout, sentAt time.Duration) (*Session, error) {
	c := l.link
	if timeout <= 0 { // nor has a session any time left that was to be resumed
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
		old.resume(timeout, timeout-margin) // refused or not: the server has set its clock to it
		return old, refusal
	}
	if refusal != nil {
		return nil, refusal
	}
	s := newSession(c, id, timeout, sentAt, timeout-margin, func() bool { return true }) // it began with a write; the lease says it all
	l.current.Store(s)
	if old != nil {
		c.Notice.End(old.String())
		old.End(zk.ErrSessionExpired)
	}
	c.Notice.Begin(s.String())
	l.warnOfTick(s)
	if c.ctx.Err() != nil { // closed: Close may have looked for a session before
		s.End(second.ErrClosed)
	}
	return s, nil
}

// introduce returns the handshake to send in place of the library's, which ignores what the client has seen. introduce asks for a new
// session if the connection was away for the session timeout. All holds are lost by then, and if only the answers got lost, each attempt
// to resume the session would keep its nodes in the queue. A server whose data was lost or restored refuses a client that has seen a
// later transaction, every time. The handshake then finally says that none has been seen. It may know the old session, with nodes that
// were deleted since, and no process would delete these again while that session lives. The handshake therefore does not ask for the old
// session, either.
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

// expired is called when a server's handshake says that the session has expired.
func (l *dialed) expired() {
	if old := l.current.Swap(nil); old != nil {
		l.link.Notice.End(old.String())
		old.End(zk.ErrSessionExpired)
	}
	l.seen.Store(0)
}

// warnOfTick warns if the session timeout may be too short for the lease, which assumes that the servers' tick is at most a quarter of
// it. Servers do not report their tick. Nearly all run with 2 s, and by default a server grants no timeout below two ticks.
func (l *dialed) warnOfTick(s *Session) {
	const usualTick = 2 * time.Second
	timeout := s.Negotiated()
	if raised := timeout > l.link.config.TTL; raised || timeout < 4*usualTick {
		l.link.config.Logger.Warn("zklock: the session timeout may be too short for a safe lease during a network partition; "+
			"it should be four times tickTime",
			"granted", timeout, "asked for", l.link.config.TTL, "safe with tickTime up to", timeout/4)
	}
}

// keep proves to the server, and to us, that the session lives: every eighth of its timeout a sync, and a write behind it while a node is
// queued or held. Without the sync, a node created after a quiet time could not be granted by its create alone; see [proof].
func (l *dialed) keep() {
	if l.awaitConnection(l.link.ctx) != nil { // the pace is what was granted, not what was asked for
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
		timer.Reset(halfTick(l.link.Timeout())) // before the write: a slow one takes none of the pace
		if synced {
			l.prove()
			l.removeWatches()
		}
	}
}

// mostRemoved is how many watches are removed at once, each by a request of its own.
const mostRemoved = 256

// removeWatches removes watches that were not needed since its last call, unless the servers are older than 3.5 and close the connection
// on that request.
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
		l.link.Events.removed(unused) // or not: then the connection has ended, and the watches with it
	})
}

func (l *dialed) sync() bool {
	_, err := l.link.Conn.Sync("/")
	return err == nil
}

// prove sends a write that changes nothing, unless there is nothing to lose.
func (l *dialed) prove() {
	if s := l.Session(); s != nil {
		for n := range s.Contenders() {
			if !n.IsLost() { // one that is stays in the books until its owner gives it up, and may be gone
				n.Prove()
				return
			}
		}
	}
}

// reopen makes the library send a request when the connection is back. No batch is sent before it, see [socket]. reopen waits for no other
// answer, which may need this request.
func (l *dialed) reopen() {
	for l.verify.Wait(l.link.ctx) == nil {
		l.verify.Clear()
		var members map[Member]bool // before the connection came; the others have just been heard of
		if s := l.Session(); s != nil {
			members = s.Contenders()
		}
		l.sync()
		l.link.Spawn(func() {
			l.prove() // makes the answer to the handshake count for the lease
			for n, held := range members {
				if held {
					n.Check()
				}
			}
		})
	}
}

// secure puts TLS on top of a connection to the server, if the link uses TLS. After an error the connection is closed.
func (l *dialed) secure(conn net.Conn, server string) (net.Conn, error) {
	cfg := l.link.config.TLS
	if cfg == nil {
		return conn, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(server) // it was checked that it is both
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
