package link

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
)

// maxFrame is the largest size of a frame that is read. The largest frame that a healthy server sends is a list of children.
const maxFrame = 32 << 20

// maxSkipped is the largest size of a frame that is read and dropped. If the first bytes come from another protocol, they announce a larger
// frame.
const maxSkipped = 512 << 20

// A socket is one connection to one server. A socket stands between the ZooKeeper client library and the network, because only there the
// hazards of the library can be avoided without a fork (line numbers are of conn.go in v1.0.4):
//
//   - It reads the frames. From them it learns the negotiated timeout, the session id, and
//     when each request was sent and answered. A lease can be based on nothing else.
//   - It puts its own deadline on the handshake. The library's deadline (683) is 6.67 session
//     timeouts for each address: one frozen server would cost the session.
//   - Its Write never fails. It kills the connection instead, so that each failure surfaces
//     once, as zk.ErrConnectionClosed. A failed write while the library presents the
//     credentials again would block the library without end (527, go-zookeeper#163).
//   - It reads each whole frame under one deadline, because the library clears the deadline
//     after the length (685). It bounds the size of a frame, because the library allocates
//     any announced size (690) and panics on a short frame (831). It checks each count in a
//     frame before the library sees it.
//   - It closes the connection of an expired session, which the library does not do (435).
//   - It sends requests together that the library would send one by one; see batch and [dialed.Gather].
type socket struct {
	net.Conn
	server string // the name under which it was dialed
	dialed *dialed
	reader *bufio.Reader // reads from Conn; only the reading goroutine uses it
	frame  []byte        // the unread rest of the current frame
	buffer []byte        // reused for each frame

	// These fields are set before the first reply is read, by the goroutine that shakes hands. The library starts its other goroutines
	// after that.
	session *Session      // nil until the handshake is answered
	shookAt time.Duration // when the handshake was sent

	// The channel open is closed when the library has sent its first request after the credentials, because a server may want to see the
	// credentials first. It is also closed when the connection has ended.
	open    chan struct{}
	opening func() // closes the channel open

	writing chan struct{} // has an element while a goroutine writes
	frames  wire.Encoder  // belongs to the writing goroutine, which reuses it

	mu      sync.Mutex           // guards the fields below
	sent    map[int32]unanswered // the key is the xid
	lastXid int32                // the last xid of a request that the socket sent by itself
	closing bool                 // this side is closing the connection, and the reason has been reported
	dead    bool                 // the connection has ended
	proof   proof                // shows since when the leader has certainly heard of the session

	waiting  []*batch      // the batches of the next group; the goroutine of the first batch sends the group
	leave    chan struct{} // closed when the group is to be sent; nil while no goroutine waits for that
	underWay int           // the number of groups without an answer
	trip     time.Duration // the round trip time of the last group

	kill func()
}

func newSocket(conn net.Conn, server string, l *dialed) *socket {
	s := &socket{
		Conn:    conn,
		server:  server,
		dialed:  l,
		reader:  bufio.NewReaderSize(conn, 8<<10),
		open:    make(chan struct{}),
		writing: make(chan struct{}, 1),
		sent:    make(map[int32]unanswered),
		lastXid: firstXid,
	}
	s.opening = sync.OnceFunc(func() { close(s.open) })
	s.kill = sync.OnceFunc(func() {
		s.mu.Lock()
		s.closing = true // set before the reading goroutine notices that the connection is closed
		s.mu.Unlock()
		conn.Close()
		s.end()
		s.opening()
	})
	return s
}

func (s *socket) Close() error {
	s.kill()
	return nil
}

// Write sends one frame of the library. The library writes each frame with one call (676, 751, 781).
func (s *socket) Write(frame []byte) (int, error) {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	// The clock is read before the write. Therefore the lease may start too early, but never too late.
	send, now := s.send, s.dialed.link.Now()
	if s.session == nil {
		send = s.shakeHands
	}
	if err := send(frame, now); err != nil {
		s.broke(err)
	}
	return len(frame), nil
}

// broke is called after a failed write.
func (s *socket) broke(err error) {
	s.dialed.trouble(fmt.Errorf("write to %s: %w", s.server, err))
	s.kill()
}

func (s *socket) shakeHands(frame []byte, now time.Duration) error {
	s.shookAt = now
	// Replaces the library's deadline, which is so long that one frozen server can cost the session.
	s.Conn.SetWriteDeadline(time.Now().Add(s.dialed.handshakeTimeout()))
	_, err := s.Conn.Write(s.dialed.introduce(frame, now))
	return err
}

func (s *socket) send(frame []byte, now time.Duration) error {
	d := wire.Decoder{Rest: wire.Body(frame)}
	h := d.RequestHeader()
	s.mu.Lock()
	s.noteLocked(h, now, nil, false)
	s.mu.Unlock()
	if h.Op != wire.OpSetAuth {
		defer s.opening()
	}
	_, err := s.Conn.Write(frame)
	return err
}

// An unanswered is a request without an answer. It consists of parts of batches. A request of the library has no parts.
type unanswered struct {
	sentRequest
	parts []*part
	last  bool // the last request of a group
}

// noteLocked records which request is sent, and when.
func (s *socket) noteLocked(h wire.RequestHeader, now time.Duration, parts []*part, last bool) {
	s.sent[h.Xid] = unanswered{s.proof.sent(h.Op, now), parts, last}
}

func (s *socket) Read(p []byte) (int, error) {
	for len(s.frame) == 0 {
		if err := s.readFrame(); err != nil {
			s.explain(err) // explained before kill, so that code that notices the end finds the reason
			s.kill()
			return 0, err
		}
	}
	n := copy(p, s.frame)
	s.frame = s.frame[n:]
	return n, nil
}

// readFrame reads the next frame with its length. It acts on the frame before the library gets the first byte. Some frames are not for the
// library.
func (s *socket) readFrame() error {
	if s.session == nil {
		s.Conn.SetReadDeadline(time.Now().Add(s.dialed.handshakeTimeout())) // replaces the library's deadline
		if err := otherProtocol(s.reader); err != nil {
			return err
		}
	}
	frame, err := wire.ReadFrame(s.reader, s.buffer, maxFrame)
	if err != nil && s.session != nil {
		frame, err = s.skip(err)
	}
	if err != nil {
		return err
	}
	s.buffer = frame
	if s.session == nil {
		err = s.noteHandshake(wire.Body(frame))
	} else {
		frame, err = s.noteReply(frame)
	}
	if err == nil {
		s.frame = frame
	}
	return err
}

// skip drops the answer to a read if the answer is too long; err says how long it is. skip returns a frame with an error instead of the
// answer. The connection and all other requests continue. Only answers to reads can be that long.
func (s *socket) skip(err error) ([]byte, error) {
	var announced wire.TooLong
	if !errors.As(err, &announced) || announced > maxSkipped {
		return nil, err
	}
	head := make([]byte, wire.ReplyHeaderSize)
	if _, err := io.ReadFull(s.reader, head); err != nil {
		return nil, err
	}
	d := wire.Decoder{Rest: head}
	reply := d.ReplyHeader()
	s.mu.Lock()
	op := s.sent[reply.Xid].op
	s.mu.Unlock()
	switch op {
	case wire.OpGetChildren, wire.OpGetChildren2, wire.OpGetData, wire.OpMultiRead:
	default:
		return nil, announced
	}
	if _, err := s.reader.Discard(int(announced) - len(head)); err != nil {
		return nil, err
	}
	reply.Code = wire.CodeTooLong
	var e wire.Encoder
	e.ReplyHeader(reply)
	return wire.Frame(e), nil
}

// explain records why nothing more is read. If the connection has already ended for another reason, explain records nothing.
func (s *socket) explain(err error) {
	s.mu.Lock()
	known := s.closing
	s.mu.Unlock()
	switch {
	case known:
	case s.session == nil:
		s.dialed.trouble(fmt.Errorf("handshake with %s: %w", s.server, handshakeError(err, s.dialed.link.config.TLS != nil)))
	default:
		s.dialed.trouble(fmt.Errorf("connection to %s lost: %w", s.server, err))
	}
}

// noteReply returns the part of the frame that the library gets. The frame is a reply or an event.
func (s *socket) noteReply(frame []byte) ([]byte, error) {
	d := wire.Decoder{Rest: wire.Body(frame)}
	reply := d.ReplyHeader()
	switch {
	case d.Bad:
		return nil, fmt.Errorf("reply of %d bytes", len(frame))
	case reply.Xid == wire.XidEvent:
		if d.Event(); d.Bad {
			return nil, fmt.Errorf("malformed event, of %d bytes", len(frame))
		}
		return frame, nil
	}
	request, heard, proven, err := s.noteAnswer(reply, d)
	if err != nil {
		return nil, err
	}
	if proven {
		s.session.Renew(heard)
	}
	if reply.Xid <= firstXid {
		request.answer(s, reply, d)
		return nil, nil
	}
	return frame, nil
}

// noteAnswer returns an error for a reply to a request that was never sent, because the library would accept such a reply for a request
// that it has not written yet. If the answer proves that the leader has heard of the session, noteAnswer also returns since when. Only
// successful answers prove this, because a follower returns some errors by itself.
func (s *socket) noteAnswer(reply wire.ReplyHeader, body wire.Decoder) (request unanswered, heard time.Duration, proven bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	request, known := s.sent[reply.Xid]
	if reply.Xid >= 0 || reply.Xid <= firstXid { // the library ignores all other xids
		if !known {
			return request, 0, false, fmt.Errorf("reply to request %d, which was never sent", reply.Xid)
		}
		if reply.Code == wire.CodeOK {
			if err := checkReply(request.op, body); err != nil {
				return request, 0, false, err
			}
		}
	}
	delete(s.sent, reply.Xid)
	if request.last { // the last request of its group
		s.underWay--
		s.trip = s.dialed.link.Now() - request.at
		s.leaveLocked()
	}
	if reply.Zxid > 0 { // 0 in the reply to credentials
		s.dialed.seen.Store(reply.Zxid)
	}
	switch {
	case !known || reply.Code != wire.CodeOK:
	case request.op == wire.OpSync:
		s.proof.synced(request.sentRequest, s.dialed.link.Now())
	case committed(request.op, body):
		heard, proven = s.proof.wrote(request.sentRequest)
	}
	return request, heard, proven, nil
}

func (s *socket) noteHandshake(body []byte) error {
	d := wire.Decoder{Rest: body}
	reply := d.ConnectReply()
	if d.Bad {
		return fmt.Errorf("malformed reply of %d bytes", len(body))
	}
	if reply.Session == 0 {
		s.dialed.expired()
		s.kill() // the frame that was just read still goes to the library
		return nil
	}
	session, err := s.dialed.established(reply.Session, reply.Timeout, s.shookAt)
	if err != nil {
		return err
	}
	s.session = session
	s.mu.Lock()
	s.proof = opened(s.shookAt, s.dialed.link.Now(), halfTick(session.Negotiated()))
	s.mu.Unlock()
	return nil
}

// The client library waits for the answer to each request before its caller can send the next one. It does not return the transaction id of
// a reply or its session. Therefore the socket itself sends requests that belong together, in one write. These requests have xids that the
// library does not use.

// firstXid is the first xid of these requests. Their xids count down, away from the xids with a special meaning.
const firstXid = -1000

// A batch has requests that are sent together. The server executes and answers the requests of a session in the order in which they were
// sent.
type batch struct {
	parts   []part
	answers []Answer
	missing sync.WaitGroup // counts the parts that have no answer yet
	few     struct {       // the memory of the slices parts and answers if there are at most two of each
		parts   [2]part
		answers [2]Answer
	}

	// The following fields are for a batch that may leave in a group:
	path string // the path to which the requests belong; "" if the batch must not leave in a group
	ctx  context.Context
}

// A part is one request of a batch.
type part struct {
	batch   *batch
	ops     []any // the operations of its request
	encoded wire.Encoder
	answer  *Answer
}

func newBatch(requests []Request) *batch {
	b, n := new(batch), len(requests)
	if b.parts, b.answers = b.few.parts[:], b.few.answers[:]; n > len(b.parts) {
		b.parts, b.answers = make([]part, n), make([]Answer, n)
	}
	b.parts, b.answers = b.parts[:n], b.answers[:n]
	all := make(wire.Encoder, 0, 256) // large enough for most batches
	for i, q := range requests {
		begin := len(all)
		ops := q.ops()
		all = encode(all, ops)
		b.parts[i] = part{b, ops, all[begin:], &b.answers[i]}
	}
	b.missing.Add(len(requests))
	return b
}

// The method watches reports whether the request asks for a watch.
func (p *part) watches() bool {
	r, reads := p.ops[0].(read)
	return reads && r.Watch
}

// The method fail answers the request with an error.
func (p *part) fail(err error) {
	p.answer.Err = err
	p.batch.missing.Done()
}

func (l *dialed) Ask(requests ...Request) []Answer { return l.send(newBatch(requests)) }

func (l *dialed) send(b *batch) []Answer {
	s := l.socket.Load()
	if s == nil || !l.connected.IsSet() {
		b.fail(zk.ErrNoServer)
	} else if <-s.open; b.path == "" || s.gather(b) {
		s.writing <- struct{}{}
		if frames := s.encode(b); len(frames) > 0 {
			if _, err := s.Conn.Write(frames); err != nil {
				s.broke(err)
			}
		}
		<-s.writing
	}
	b.missing.Wait()
	for i := range b.parts {
		if p := &b.parts[i]; p.watches() {
			l.link.Events.answered(p.ops[0].(read), *p.answer)
		}
	}
	return b.answers
}

func (b *batch) fail(err error) {
	for i := range b.parts {
		b.parts[i].fail(err)
	}
}

// encode records the requests of a batch, or of its whole group, before they are sent. It returns their frames. It leaves out requests
// whose callers have left. If the connection has ended, encode answers all requests with that error and returns nothing.
func (s *socket) encode(b *batch) wire.Encoder {
	s.mu.Lock()
	defer s.mu.Unlock()
	batches := []*batch{b}
	if b.path != "" {
		batches, s.waiting = s.waiting, nil
	}
	batches = slices.DeleteFunc(batches, func(b *batch) bool {
		switch {
		case s.dead:
			b.fail(fmt.Errorf("%w: the connection to %s has ended", zk.ErrNoServer, s.server))
		case b.ctx != nil && b.ctx.Err() != nil:
			b.fail(zk.ErrNoServer)
		default:
			return false
		}
		return true
	})
	if s.frames = s.frames[:0]; cap(s.frames) > mostBytes { // the buffer has grown because many requests came at once
		s.frames = nil
	}
	requests := s.dialed.join(batches)
	for i, parts := range requests {
		last := b.path != "" && i == len(requests)-1
		if last {
			s.underWay++
		}
		if len(parts) > 1 {
			s.dialed.link.Groups.Add(1)
			s.dialed.link.Grouped.Add(int64(len(parts)))
			s.encodeWatchesLocked(parts)
		}
		s.encodeLocked(opOfAll(parts), parts, last)
	}
	return s.frames
}

// encodeWatchesLocked encodes a request for the watches that the reads need. The request is sent ahead of the combined reads, because a
// server sets no watches for combined reads. A read with a watch therefore has two answers. The first answer has only an error code.
func (s *socket) encodeWatchesLocked(parts []*part) {
	watching := slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return !p.watches() })
	if len(watching) == 0 {
		return
	}
	for _, p := range watching {
		p.batch.missing.Add(1)
	}
	s.encodeLocked(wire.OpSetWatches, watching, false)
}

// encodeLocked records requests that are sent as one request, and appends the frame of that request.
func (s *socket) encodeLocked(op int32, parts []*part, last bool) {
	now := s.dialed.link.Now()             // read before the write: a lease may start too early, but not too late
	if s.lastXid--; s.lastXid > firstXid { // the counter has passed the lowest number, and the first xids are free again
		s.lastXid = firstXid
	}
	h := wire.RequestHeader{Xid: s.lastXid, Op: op}
	s.noteLocked(h, now, parts, last)
	begin := len(s.frames)
	s.frames.Int32(0) // the place of the length
	s.frames.RequestHeader(h)
	s.frames = appendBody(s.frames, h.Op, parts)
	s.frames.EndFrame(begin)
}

// The method answer delivers an answer. If the connection has ended in the meantime, the requests have already been answered.
func (u unanswered) answer(s *socket, reply wire.ReplyHeader, body wire.Decoder) {
	for _, p := range u.parts {
		p.answer.Zxid, p.answer.Session = reply.Zxid, s.session
	}
	switch {
	case len(u.parts) == 0:
	case reply.Code == wire.CodeOK:
		s.dialed.decodeAll(&body, u.op, u.parts)
	case u.op == wire.OpMultiRead && reply.Code == wire.CodeUnimplemented: // the server also closes the connection
		s.dialed.oneByOne.Store(true)
		fail(u.parts, zk.ErrConnectionClosed)
	case u.op == wire.OpRemoveWatches && reply.Code == wire.CodeUnimplemented: // the server also closes the connection
		s.dialed.keepsWatches.Store(true)
	case u.op == wire.OpMultiRead && reply.Code == wire.CodeTooLong: // each of the combined answers may be short enough by itself
		s.dialed.oneByOne.Store(true)
		fail(u.parts, errAgain)
	default:
		fail(u.parts, wire.CodeError(reply.Code))
	}
	for _, p := range u.parts {
		p.batch.missing.Done()
	}
}

// The method end is called after the end of the connection, when no more answers can come.
func (s *socket) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	lost := fmt.Errorf("%w: to %s", zk.ErrConnectionClosed, s.server)
	for _, request := range s.sent {
		for _, p := range request.parts {
			p.fail(lost)
		}
	}
	clear(s.sent)
	s.leaveLocked()
}

// The library trusts the counts in a reply. It allocates as much as a count claims, reads beyond the frame, or panics in a goroutine of its
// own. Therefore each body is first decoded here in the same way as by the library (structs.go). Both ignore bytes after the body.

// checkReply checks the body of a successful reply to a request of type op. Only types that clients send are allowed.
func checkReply(op int32, body wire.Decoder) error {
	size := len(body.Rest)
	switch d := &body; op {
	case wire.OpCreate, wire.OpSync:
		passString(d)
	case wire.OpExists, wire.OpSetData:
		d.Take(wire.StatSize)
	case wire.OpGetData:
		d.Buffer()
		d.Take(wire.StatSize)
	case wire.OpGetChildren2:
		passList(d)
		d.Take(wire.StatSize)
	case wire.OpMulti, wire.OpMultiRead:
		passResults(d)
	}
	if body.Bad {
		return fmt.Errorf("malformed reply to %s, of %d bytes", wire.OpName(op), size)
	}
	return nil
}

// passResults reads as far as the library does. The library stops at a result of an unknown type.
func passResults(d *wire.Decoder) {
	for h := d.MultiHeader(); !h.Done; h = d.MultiHeader() {
		switch h.Op {
		case wire.OpError:
			d.Int32()
		case wire.OpCreate:
			passString(d)
		case wire.OpSetData:
			d.Take(wire.StatSize)
		case wire.OpGetChildren:
			passList(d)
		case wire.OpGetData:
			d.Buffer()
			d.Take(wire.StatSize)
		case wire.OpCheck, wire.OpDelete:
		default: // this includes the end of the data
			return
		}
	}
}

// passList reads a list of strings. The list must not be null.
func passList(d *wire.Decoder) {
	n := d.Int32()
	d.Bad = d.Bad || n < 0
	for ; n > 0 && !d.Bad; n-- {
		passString(d)
	}
}

// passString reads a string. The string must not be null.
func passString(d *wire.Decoder) { d.Take(int(d.Int32())) }
