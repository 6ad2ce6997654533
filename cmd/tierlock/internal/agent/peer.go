package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/tierlock/tierlock/internal/second"
)

// A peer is a connection of a client, with the process that opened it.
type peer struct {
	net.Conn
	pid      int         // 0 if it is unknown
	uid, gid int         // -1 if they are unknown
	gone     atomic.Bool // the connection has ended
	hears    atomic.Pointer[context.CancelCauseFunc]
}

// A listener makes peers of connections.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	p := &peer{Conn: conn, uid: -1, gid: -1}
	p.identify()
	return p, nil
}

type peerKey struct{}

func withPeer(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, conn)
}

func peerOf(ctx context.Context) *peer {
	p, _ := ctx.Value(peerKey{}).(*peer)
	return p
}

// errSpoke is why a hold ends whose client sends something on its connection. The server then reads no further, and would not notice the
// end of the connection.
var errSpoke = errors.New("the client has sent something on the connection of its hold")

// errDied is why a hold ends whose process has ended, although the connection is still open in another process.
var errDied = errors.New("the process of the client has ended")

// Read is called by the server. While the answer to a request is a stream, the server tries to read in order to notice the end of the
// connection.
func (p *peer) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // the server ends its own reads by a deadline
		p.gone.Store(true)
	}
	switch cancel := p.hears.Load(); {
	case cancel == nil:
	case n > 0:
		(*cancel)(errSpoke)
	case p.gone.Load():
		(*cancel)(context.Canceled)
	}
	return n, err
}

// attend returns a context that ends when the client is gone: the connection ends, the client sends something, or its process ends. Call
// done once the request is answered. The context of the request is not enough: it also ends when a write fails, although the client may
// still be there.
func (p *peer) attend(ctx context.Context) (attended context.Context, done func()) {
	attended, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.hears.Store(&cancel)
	if p.gone.Load() { // since before the line above
		cancel(context.Canceled)
	}
	unwatch := p.watch(func() { cancel(errDied) })
	return attended, func() {
		p.hears.Store(nil)
		unwatch()
		cancel(nil)
	}
}

// same reports whether another connection belongs to the same process. Processes that are unknown are all the same.
func (p *peer) same(other *peer) bool { return p.pid == other.pid && p.uid == other.uid }

func (p *peer) String() string {
	if p.pid == 0 {
		return "a process that the agent cannot see"
	}
	return fmt.Sprintf("process %d of user %d", p.pid, p.uid)
}

// reads has an element per read of a command line. Such a read blocks a thread for as long as the process wants: its memory can be a file
// of its own file system. Further requests get no command line then.
var reads = make(chan struct{}, 4)

// command returns the command line of the process, as far as the agent may read it. A command line can have secrets, so other users do not
// get it, except root and the user of the agent.
func (p *peer) command(asker *peer) string {
	if p.pid == 0 || p.uid != asker.uid && !asker.operates() {
		return ""
	}
	select {
	case reads <- struct{}{}:
		defer func() { <-reads }()
	default:
		return ""
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	const most = 200
	text := strings.ToValidUTF8(strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")), "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return second.Text(text)
}
