package zktest

import (
	"bufio"
	"net"

	"github.com/tierlock/tierlock/internal/fate"
	"github.com/tierlock/tierlock/internal/wire"
)

// A conn is one connection of a client, and four goroutines: read never stops reading, so that a client can always
// write; process takes one request after the other; write sends replies and events; deliver hands over what has some
// way to go.
type conn struct {
	server *Server
	member *Member
	nc     net.Conn
	in     *queue[travelling]
	out    *queue[outgoing]
	away   *queue[travelling]
	done   chan struct{} // closed by cutLocked

	// Guarded by server.mu.
	claim   int64    // the session whose frames these are; before the answer to the handshake, the one it asks for
	session *session // nil before the handshake and after the connection has ended
	auth    []identity
	ended   bool
	steps   []*step // requests in order, the first of which waits for the leader
}

// A step is a request in the order of its connection.
type step struct {
	ready bool // for its answer: the leader has it, or need not
	run   func()
}

type outgoing struct {
	frame Frame
	bytes []byte
}

func (c *conn) read() {
	defer c.in.close()
	r := bufio.NewReader(c.nc)
	for {
		frame, err := wire.ReadFrame(r, nil, maxFrame)
		if err != nil {
			return
		}
		c.travel(c.in, wire.Body(frame))
	}
}

func (c *conn) process() {
	defer c.cut()
	if body, ok := c.arrival(c.in); !ok || !c.handshake(body) {
		return
	}
	for {
		body, ok := c.arrival(c.in)
		if !ok {
			return
		}
		c.request(body)
	}
}

// request handles one request. What was read from a connection that has since ended is forgotten.
func (c *conn) request(body []byte) {
	d := &wire.Decoder{Rest: body}
	h := d.RequestHeader()
	if d.Bad {
		c.cut()
		return
	}
	if !c.lockOpen(ToServer) {
		return
	}
	if c.session == nil { // its session has been closed or refused
		c.server.mu.Unlock()
		return
	}
	path := wire.RequestPath(h.Op, d.Rest)
	f := c.server.frameLocked(c, Request, Op(h.Op), path)
	f.First = Op(wire.FirstOp(h.Op, d.Rest))
	c.server.mu.Unlock()

	action := c.fate(&f)
	switch action {
	case Drop:
		return
	case Cut:
		c.cut()
		return
	}
	// The gate may have shut while the hook thought.
	if !c.lockOpen(ToServer) {
		return
	}
	defer c.server.mu.Unlock()
	c.member.noteLocked(c.session)
	f.Stage = Reply
	st := &step{ready: true, run: func() { c.server.answerLocked(c, f, h.Xid, d) }}
	c.steps = append(c.steps, st)
	switch {
	case action.Verb == fate.Error:
		st.run = func() { c.out.push(outgoing{f, replyFrame(h.Xid, c.member.viewLocked().zxid, Code(action.Code), nil)}) }
	case c.member.forwarded(f.Op) && c.member.link.down != nil:
		st.ready = false
		sess := c.session
		c.member.sendUpLocked(&upward{arrive: func() { c.arrivedLocked(st, sess, f.Op, d) }})
	}
	c.stepLocked()
}

// arrivedLocked is called when the leader gets a request that had to wait.
func (c *conn) arrivedLocked(st *step, sess *session, op Op, d *wire.Decoder) {
	switch s := c.server; {
	case s.sessions[sess.id] != sess || sess.member != c.member: // expired, or moved to another member
	case c.ended && op == OpClose:
		s.endLocked(sess)
	case c.ended && op != OpSync:
		s.applyLocked(sess, c.auth, op, d)
	default:
		st.ready = true
		c.stepLocked()
	}
}

// stepLocked answers what can be answered, in order.
func (c *conn) stepLocked() {
	for len(c.steps) > 0 && c.steps[0].ready && !c.ended && c.session != nil {
		first := c.steps[0]
		c.steps = c.steps[1:]
		first.run()
	}
}

func (c *conn) write() {
	defer c.away.close() // ends deliver, by that read, and by that process
	for {
		o, ok := c.out.pop()
		if !ok || !c.send(o) {
			return
		}
	}
}

func (c *conn) send(o outgoing) bool {
	if !c.lockOpen(ToClient) {
		return false
	}
	c.server.mu.Unlock()
	switch c.fate(&o.frame) {
	case Drop:
		return true
	case Cut:
		c.cut()
		return false
	}
	if !c.lockOpen(ToClient) {
		return false
	}
	c.server.mu.Unlock()
	return c.depart(o.bytes)
}

// sendEvent queues a watch event. It is called with server.mu held.
func (c *conn) sendEvent(kind int32, path string) {
	f := c.server.frameLocked(c, Event, OpEvent, path)
	c.out.push(outgoing{f, eventFrame(kind, path)})
}

// lockOpen waits until nothing holds up the direction, and returns with server.mu locked.
// It returns false, and server.mu unlocked, if the connection ended first.
func (c *conn) lockOpen(dir Direction) bool {
	for {
		c.server.mu.Lock()
		if c.ended {
			c.server.mu.Unlock()
			return false
		}
		gate := c.server.gateLocked(c, dir)
		if gate == nil {
			return true
		}
		c.server.mu.Unlock()
		select {
		case <-gate:
		case <-c.done:
		}
	}
}

// lockLed is lockOpen for a handshake, which the leader has to agree to. One that is deposed goes by what it knows.
func (c *conn) lockLed(session int64) bool {
	for {
		if !c.lockOpen(ToServer) {
			return false
		}
		l := &c.member.link
		if l.down == nil || l.deposed && c.server.sessions[session] != nil {
			return true
		}
		down := l.down
		c.server.mu.Unlock()
		select {
		case <-down:
		case <-c.done:
		}
	}
}

func (c *conn) cut() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.cutLocked()
}

// cutLocked ends the connection at once. The session, if any, stays.
func (c *conn) cutLocked() {
	if c.ended {
		return
	}
	c.ended = true
	close(c.done)
	c.in.discard()
	c.out.discard()
	c.away.discard()
	c.nc.Close()
	delete(c.server.conns, c)
	c.detachLocked()
}

// detachLocked takes the connection out of everything that could still queue a frame for it.
func (c *conn) detachLocked() {
	c.member.watches.data.drop(c)
	c.member.watches.child.drop(c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	c.session = nil
}

// finishLocked ends the connection once all that is queued for it has been sent.
func (c *conn) finishLocked() {
	c.out.close()
	c.detachLocked()
}
