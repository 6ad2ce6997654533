package faultproxy

import (
	"bufio"
	"fmt"
	"net"
	"slices"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zktest"
)

const maxFrame = 32 << 20 // no honest frame is longer

// A conn is a connection of a client and the one to the server that it goes on in, with a goroutine for each
// direction: so frames keep their order.
type conn struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn      // set before the goroutine that reads it starts
	done   chan struct{} // closed by cutLocked

	// Guarded by proxy.mu.
	ended   bool
	pending []request // on their way to the server or without an answer
}

// A request waits for its reply.
type request struct {
	frame zktest.Frame
	xid   int32 // zero in a handshake, whose answer begins with a zero
}

// serve dials the server and passes on what the client sends.
func (c *conn) serve() {
	defer c.cut()
	server, err := new(net.Dialer).DialContext(c.proxy.ctx, "tcp", c.proxy.server)
	if err != nil {
		return
	}
	c.proxy.mu.Lock()
	c.server = server
	ended := c.ended
	c.proxy.mu.Unlock()
	if ended { // before there was a server connection to cut
		server.Close()
		return
	}
	c.proxy.wg.Go(c.passReplies)
	c.passRequests()
}

func (c *conn) passRequests() {
	r := bufio.NewReader(c.client)
	for read := handshakeIn; ; read = requestIn {
		frame, err := wire.ReadFrame(r, nil, maxFrame)
		if err != nil || !c.passRequest(read(frame), frame) {
			return
		}
	}
}

func handshakeIn([]byte) request {
	return request{frame: zktest.Frame{Dir: zktest.Request, Op: "connect"}}
}

func requestIn(frame []byte) request {
	d := wire.Decoder{Rest: wire.Body(frame)}
	h := d.RequestHeader()
	path, first := d.About(h.Op)
	return request{zktest.Frame{Dir: zktest.Request, Op: wire.OpName(h.Op), Path: path, First: first}, h.Xid}
}

func (c *conn) passRequest(q request, frame []byte) bool {
	if !c.passes(q.frame) {
		return false
	}
	c.proxy.mu.Lock()
	c.pending = append(c.pending, q) // before the server can answer
	c.proxy.mu.Unlock()
	_, err := c.server.Write(frame)
	return err == nil
}

func (c *conn) passReplies() {
	defer c.cut()
	r := bufio.NewReader(c.server)
	for {
		frame, err := wire.ReadFrame(r, nil, maxFrame)
		if err != nil || !c.passReply(frame) {
			return
		}
	}
}

func (c *conn) passReply(frame []byte) bool {
	if !c.passes(c.answered(frame)) {
		return false
	}
	_, err := c.client.Write(frame)
	return err == nil
}

// answered makes a frame of what the server sent.
func (c *conn) answered(frame []byte) (f zktest.Frame) {
	d := wire.Decoder{Rest: wire.Body(frame)}
	h := d.ReplyHeader()
	if h.Xid == wire.XidEvent {
		return zktest.Frame{Dir: zktest.Reply, Op: "event", Path: d.Event().Path}
	}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	// Pings and credentials are answered out of turn, so the first one is not always it.
	if i := slices.IndexFunc(c.pending, func(q request) bool { return q.xid == h.Xid }); i >= 0 {
		f = c.pending[i].frame
		c.pending = slices.Delete(c.pending, i, i+1)
	}
	f.Dir = zktest.Reply
	return f
}

// passes reports whether the frame is to be passed on, and has waited while its direction was muted, be it by the hook.
func (c *conn) passes(f zktest.Frame) bool {
	if !c.await(f.Dir) {
		return false
	}
	c.proxy.mu.Lock()
	hook := c.proxy.hook
	c.proxy.mu.Unlock()
	if hook != nil {
		switch a := hook(&f); a {
		case zktest.Pass:
		case zktest.Cut:
			return false
		default:
			panic(fmt.Sprintf("faultproxy: Intercept answered %v to %v, want Pass or Cut", a, f))
		}
	}
	return c.await(f.Dir)
}

// await waits until the direction is not muted. It reports false if the connection ended first.
func (c *conn) await(dir zktest.Direction) bool {
	for {
		c.proxy.mu.Lock()
		ended, gate := c.ended, c.proxy.muted[dir]
		c.proxy.mu.Unlock()
		if ended || gate == nil {
			return !ended
		}
		select {
		case <-gate:
		case <-c.done:
		}
	}
}

func (c *conn) cut() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.cutLocked()
}

// cutLocked ends the connection at once, on both sides.
func (c *conn) cutLocked() {
	if c.ended {
		return
	}
	c.ended = true
	close(c.done)
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
	delete(c.proxy.conns, c)
}
