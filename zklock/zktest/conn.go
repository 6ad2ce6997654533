package zktest

import (
	"bufio"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// maxFrame is the server's default jute.maxbuffer. A longer frame ends the connection.
const maxFrame = 0xfffff

// A conn is one connection of a client. It has four goroutines. read never stops reading, so that a client can always write. process
// handles one request after the other. write sends replies and events. deliver delays frames if the configuration has a latency.
type conn struct {
	server *Server
	member *Member
	nc     net.Conn
	in     *queue[travelling]
	out    *queue[outgoing]
	away   *queue[travelling]
	done   chan struct{} // closed by cutLocked

	// The following fields are guarded by server.mu.
	claim   int64    // the session to which these frames belong; until the handshake is answered, the session that the client requests
	session *session // nil before the handshake and after the connection has ended
	auth    []identity
	ended   bool
	steps   []*step // the requests in order; the first one may wait for the leader
}

// A step is a request, which waits for its turn among the requests of its connection.
type step struct {
	ready bool // it can be answered: the leader has the request, or need not have it
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

// The method request handles one request. If the connection has ended, it drops the request.
func (c *conn) request(body []byte) {
	d := &wire.Decoder{Rest: body}
	h := d.RequestHeader()
	if d.Bad {
		c.cut()
		return
	}
	if !c.lockOpen(Request) {
		return
	}
	if c.session == nil { // the session of the connection was closed or refused
		c.server.mu.Unlock()
		return
	}
	path, first := wire.About(h.Op, *d)
	f := c.server.frameLocked(c, Request, wire.OpName(h.Op), path)
	f.First = first
	c.server.mu.Unlock()

	action := c.fate(&f)
	switch action {
	case Drop:
		return
	case Cut:
		c.cut()
		return
	}
	// The hook may have blocked the direction, for example by a Mute.
	if !c.lockOpen(Request) {
		return
	}
	defer c.server.mu.Unlock()
	c.member.noteLocked(c.session)
	f.Dir = Reply
	st := &step{ready: true, run: func() { c.server.answerLocked(c, f, h, d) }}
	c.steps = append(c.steps, st)
	switch {
	case action.verb == refused:
		st.run = func() { c.out.push(outgoing{f, replyFrame(h.Xid, c.member.viewLocked().zxid, action.code, nil)}) }
	case c.member.forwarded(h.Op) && c.member.link.down != nil:
		st.ready = false
		sess := c.session
		c.member.sendUpLocked(&upward{arrive: func() { c.arrivedLocked(st, sess, h.Op, d) }})
	}
	c.stepLocked()
}

// arrivedLocked is called when the leader receives a request that had to wait.
func (c *conn) arrivedLocked(st *step, sess *session, op int32, d *wire.Decoder) {
	switch s := c.server; {
	case s.sessions[sess.id] != sess || sess.member != c.member: // the session has expired, or its client is connected to another member now
	case c.ended && op == wire.OpClose:
		s.endLocked(sess)
	case c.ended && op != wire.OpSync:
		s.applyLocked(sess, c.auth, op, d)
	default:
		st.ready = true
		c.stepLocked()
	}
}

// stepLocked answers requests in order, up to the first one that cannot be answered yet.
func (c *conn) stepLocked() {
	for len(c.steps) > 0 && c.steps[0].ready && !c.ended && c.session != nil {
		first := c.steps[0]
		c.steps = c.steps[1:]
		first.run()
	}
}

func (c *conn) write() {
	defer c.away.close() // deliver then ends, and makes read end, which makes process end
	for {
		o, ok := c.out.pop()
		if !ok || !c.send(o) {
			return
		}
	}
}

func (c *conn) send(o outgoing) bool {
	if !c.lockOpen(Reply) {
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
	if !c.lockOpen(Reply) {
		return false
	}
	c.server.mu.Unlock()
	return c.depart(o.bytes)
}

// sendEvent queues a watch event. The caller has locked server.mu.
func (c *conn) sendEvent(kind zk.EventType, path string) {
	f := c.server.frameLocked(c, Reply, "event", path)
	c.out.push(outgoing{f, eventFrame(kind, path)})
}

// lockOpen waits until nothing blocks the direction. It then locks server.mu and returns true. If the connection ends first, it returns
// false, and server.mu is not locked.
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

// lockLed is like lockOpen, for a handshake that the leader has to confirm. A deposed leader confirms it from its own state.
func (c *conn) lockLed(session int64) bool {
	for {
		if !c.lockOpen(Request) {
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

// cutLocked breaks the connection at once. Its session continues.
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

// detachLocked removes the connection from everything that could still queue a frame for it.
func (c *conn) detachLocked() {
	c.member.watches.data.drop(c)
	c.member.watches.child.drop(c)
	if c.session != nil && c.session.conn == c {
		c.session.conn = nil
	}
	c.session = nil
}

// finishLocked ends the connection after all queued frames have been sent.
func (c *conn) finishLocked() {
	c.out.close()
	c.detachLocked()
}

// A travelling is a frame on its way between client and server.
type travelling struct {
	bytes []byte
	due   time.Time
}

// The method travel sends a frame to the other end of q.
func (c *conn) travel(q *queue[travelling], bytes []byte) {
	q.push(travelling{bytes, time.Now().Add(c.server.cfg.Latency)})
}

// The method arrival waits for the next frame at the other end of q. If there are no more frames, it returns false.
func (c *conn) arrival(q *queue[travelling]) (bytes []byte, ok bool) {
	t, ok := q.pop()
	if left := time.Until(t.due); ok && left > 0 {
		ok = Delay(left).await(c.done) == Pass
	}
	return t.bytes, ok
}

// The method depart sends a frame to the client. Without a latency, the frame arrives before depart returns. If the next reply is cut, a
// reply that was let through before is therefore not lost.
func (c *conn) depart(bytes []byte) bool {
	if c.server.cfg.Latency > 0 {
		c.travel(c.away, bytes)
		return true
	}
	_, err := c.nc.Write(bytes)
	return err == nil
}

func (c *conn) deliver() {
	defer c.nc.Close()
	for {
		bytes, ok := c.arrival(c.away)
		if !ok {
			return
		}
		if _, err := c.nc.Write(bytes); err != nil {
			return
		}
	}
}

// A queue is an unbounded FIFO with one consumer. A bounded queue could deadlock: over an unbuffered pipe, the server would stop reading
// until its replies are read, and the client may do the same.
type queue[T any] struct {
	mu     sync.Mutex // guards the fields below
	ready  *sync.Cond
	items  []T
	closed bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.ready = sync.NewCond(&q.mu)
	return q
}

// push appends item. If the queue is closed, push drops item.
func (q *queue[T]) push(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, item)
		q.ready.Signal()
	}
}

// pop waits for the first item. If the queue is closed and empty, pop returns false.
func (q *queue[T]) pop() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.ready.Wait()
	}
	if len(q.items) == 0 {
		return item, false
	}
	item, q.items = q.items[0], q.items[1:]
	return item, true
}

// close closes the queue. The consumer still gets the items that are in the queue.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.ready.Signal()
}

// discard closes the queue and drops its items.
func (q *queue[T]) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.closed = nil, true
	q.ready.Signal()
}
