package faultproxy

import (
	"bufio"
	"net"
	"slices"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A conn is the connection of a client, together with the proxy's connection to the server. It has a goroutine for each direction, so
// frames keep their order.
type conn struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn      // set before the goroutine that reads it starts
	done   chan struct{} // closed by cutLocked

	// Guarded by proxy.mu.
	ended   bool
	session int64     // the session that the client asks for in the handshake, and later the session that it gets
	pending []request // requests on their way to the server, and requests without an answer
}

// A request is a request that waits for its reply.
type request struct {
	frame zktest.Frame
	xid   int32 // request number; zero in a handshake
}

// The method serve dials the server, and forwards what the client sends.
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
	if ended { // the conn was cut before there was a connection to the server
		server.Close()
		return
	}
	c.proxy.wg.Go(c.passReplies)
	c.passRequests()
}

func (c *conn) passRequests() {
	r := bufio.NewReader(c.client)
	handshake, err := wire.ReadFrame(r, nil, maxFrame)
	if err != nil || !c.passHandshake(handshake) {
		return
	}
	for {
		frame, err := wire.ReadFrame(r, nil, maxFrame)
		if err != nil || !c.passRequest(frame) {
			return
		}
	}
}

// passHandshake forwards the handshake, and reports whether requests may follow.
func (c *conn) passHandshake(frame []byte) bool {
	d := wire.Decoder{Rest: wire.Body(frame)}
	c.proxy.mu.Lock()
	c.session = d.ConnectRequest().Session
	c.proxy.mu.Unlock()
	f, ok := c.arrived("connect", "")
	return ok && c.passes(&f) && c.forward(request{frame: f}, frame)
}

func (c *conn) passRequest(frame []byte) bool {
	d := wire.Decoder{Rest: wire.Body(frame)}
	h := d.RequestHeader()
	path, first := wire.About(h.Op, d)
	f, ok := c.arrived(wire.OpName(h.Op), path)
	if !ok {
		return false
	}
	f.First = first
	return c.passes(&f) && c.forward(request{frame: f, xid: h.Xid}, frame)
}

// The method arrived creates the frame of a request. It returns false if the connection has ended.
func (c *conn) arrived(op string, path string) (zktest.Frame, bool) {
	if !c.await(zktest.Request) {
		return zktest.Frame{}, false
	}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	return c.frameLocked(zktest.Request, op, path), true
}

// The method forward sends a request to the server. If the direction was muted while the hook ran, it waits until that ends.
func (c *conn) forward(q request, frame []byte) bool {
	if !c.await(zktest.Request) {
		return false
	}
	c.proxy.mu.Lock()
	c.pending = append(c.pending, q) // the request is in the list before the server can answer it
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
	if !c.await(zktest.Reply) {
		return false
	}
	f := c.answered(frame)
	if !c.passes(&f) || !c.await(zktest.Reply) {
		return false
	}
	_, err := c.client.Write(frame)
	return err == nil
}

// The method answered creates the frame of a message from the server.
func (c *conn) answered(frame []byte) zktest.Frame {
	d := wire.Decoder{Rest: wire.Body(frame)}
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if len(c.pending) > 0 && c.pending[0].frame.Op == "connect" {
		f := c.pending[0].frame
		c.pending = nil
		if session := d.ConnectReply().Session; session != 0 {
			c.session = session
		}
		f.Dir, f.Session = zktest.Reply, c.session
		return f
	}
	h := d.ReplyHeader()
	if h.Xid == wire.XidEvent {
		return c.frameLocked(zktest.Reply, "event", d.Event().Path)
	}
	// The server answers pings and credentials out of order. Therefore the reply may not belong to the first request.
	i := slices.IndexFunc(c.pending, func(q request) bool { return q.xid == h.Xid })
	var q request
	if i >= 0 {
		q = c.pending[i]
		c.pending = slices.Delete(c.pending, i, i+1)
	}
	q.frame.Dir = zktest.Reply
	return q.frame
}

// The method await waits until the direction is not muted. It returns false if the connection ends first.
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

// cutLocked breaks the connection on both sides at once.
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
