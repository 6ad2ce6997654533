package zklock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// maxFrame bounds what a server may announce. The largest honest frame is a list of
// children.
const maxFrame = 32 << 20

// A socket is one connection to one server. It stands between the ZooKeeper client
// library and the network, because only from here the hazards of the library can be
// closed without a fork (line numbers are of conn.go in v1.0.4):
//
//   - It reads the frames, and so learns the negotiated timeout, the session id and the
//     send time of the newest answered request: the only honest base of a lease.
//   - It puts its own deadline on the handshake. The library's (683) is 6.67 session
//     timeouts per address, enough for one frozen server to cost the session.
//   - Its Write never fails but kills the connection, so that each failure surfaces
//     once, as zk.ErrConnectionClosed. A failed write while credentials are presented
//     again blocks the library for ever (527, go-zookeeper#163).
//   - It reads whole frames under one deadline (the library clears it after the length,
//     685), bounds their size (690 allocates what it is told; 831 panics on a short one),
//     and looks at every count in them first.
//   - It closes the connection of an expired session, which the library forgets (435).
//   - It holds replies back until the watches are set again after a reconnect. Else
//     replies overtake them: events get lost, and lastZxid is written (849) while it is
//     read (614).
type socket struct {
	net.Conn
	link   *dialed
	reader *bufio.Reader // of Conn; used by the reading goroutine only
	frame  []byte        // what is left of the frame being read
	buffer []byte        // of frame, used again and again

	// Set before the first reply is read, by the goroutine that shakes hands; the
	// library starts the others after that.
	session    *session
	handshaken bool
	shookAt    time.Duration // when the handshake was sent

	mu       sync.Mutex            // guards the fields below
	sent     map[int32]sentRequest // by xid; requests without a reply
	pings    []time.Duration       // likewise, when sent; pings are answered in order
	watching *watchMirror          // handed on from socket to socket of the library's connection
	rewatch  chan struct{}         // closed when the watches are set again; nil when none are to be
	dead     chan struct{}
	kill     func()
}

type sentRequest struct {
	op int32
	at time.Duration
}

func newSocket(conn net.Conn, l *dialed) *socket {
	s := &socket{
		Conn:     conn,
		link:     l,
		reader:   bufio.NewReaderSize(conn, 8<<10),
		sent:     make(map[int32]sentRequest),
		watching: l.mirror,
		dead:     make(chan struct{}),
	}
	s.kill = sync.OnceFunc(func() {
		close(s.dead)
		conn.Close()
	})
	conn.SetDeadline(time.Now().Add(l.handshakeTimeout()))
	return s
}

func (s *socket) Close() error {
	s.kill()
	return nil
}

// The library's deadlines count once the handshake is over.

func (s *socket) SetReadDeadline(t time.Time) error {
	if !s.handshaken {
		return nil
	}
	return s.Conn.SetReadDeadline(t)
}

func (s *socket) SetWriteDeadline(t time.Time) error {
	if !s.handshaken {
		return nil
	}
	return s.Conn.SetWriteDeadline(t)
}

// Write sends one frame: the library writes each with one call (676, 751, 781).
func (s *socket) Write(frame []byte) (int, error) {
	now := s.link.client.now()
	if !s.handshaken && s.link.hopeless(now) {
		frame = withoutLastZxid(frame)
	}
	s.noteRequest(frame, now)
	if _, err := s.Conn.Write(frame); err != nil {
		s.link.trouble(fmt.Errorf("write to %s: %w", s.RemoteAddr(), err))
		s.kill()
	}
	return len(frame), nil
}

// noteRequest remembers when the frame was sent. The clock was read before the write: a
// lease may only start too early.
func (s *socket) noteRequest(frame []byte, now time.Duration) {
	if !s.handshaken {
		s.shookAt = now
		return
	}
	d := wire.Decoder{Rest: wire.Body(frame)}
	h := d.RequestHeader()
	if d.Bad {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Xid == wire.XidPing {
		s.pings = append(s.pings, now)
		return
	}
	s.sent[h.Xid] = sentRequest{h.Op, now}
	s.watching.requested(h, d)
	if h.Op == wire.OpSetWatches && s.watching.rewatched() {
		s.openLocked()
	}
}

func (s *socket) Read(p []byte) (int, error) {
	if len(s.frame) == 0 {
		if err := s.readFrame(); err != nil {
			s.kill()
			return 0, err
		}
	}
	n := copy(p, s.frame)
	s.frame = s.frame[n:]
	return n, nil
}

// readFrame reads the next frame, length included, and acts on it before the library
// sees its first byte.
func (s *socket) readFrame() error {
	frame, err := wire.ReadFrame(s.reader, s.buffer, maxFrame)
	if err != nil {
		return s.readError(err)
	}
	s.buffer = frame
	if err := s.noteReply(wire.Body(frame)); err != nil {
		return s.readError(err)
	}
	s.frame = frame
	return nil
}

func (s *socket) readError(err error) error {
	if s.handshaken {
		if !errors.Is(err, net.ErrClosed) {
			s.link.trouble(fmt.Errorf("connection to %s lost: %w", s.RemoteAddr(), err))
		}
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the server hung up (it may have no quorum, be behind what this client has seen, or be over its maxClientCnxns)")
	}
	s.link.trouble(fmt.Errorf("handshake with %s: %w", s.RemoteAddr(), err))
	return err
}

func (s *socket) noteReply(body []byte) error {
	if !s.handshaken {
		return s.noteHandshake(body)
	}
	d := wire.Decoder{Rest: body}
	reply := d.ReplyHeader()
	if d.Bad {
		return fmt.Errorf("reply of %d bytes", len(body))
	}
	if err := s.check(reply, d); err != nil {
		return err
	}
	if reply.Xid >= 0 && reply.Zxid > 0 {
		if err := s.holdBack(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	var sentAt time.Duration
	answered := false
	switch {
	case reply.Xid == wire.XidEvent:
		s.watching.fired(d)
	case reply.Xid == wire.XidPing:
		if len(s.pings) > 0 {
			sentAt, answered = s.pings[0], true
			s.pings = s.pings[1:]
		}
	default:
		var request sentRequest
		request, answered = s.sent[reply.Xid]
		sentAt = request.at
		delete(s.sent, reply.Xid)
		s.watching.answered(reply)
	}
	s.mu.Unlock()
	// A server that has given the session up answers, too, but renews nothing.
	if answered && reply.Code != wire.CodeSessionExpired && reply.Code != wire.CodeSessionMoved {
		s.session.renew(sentAt)
	}
	return nil
}

// check refuses what the library must not see. The library takes a reply for the one it
// waits for even before it has written the request.
func (s *socket) check(reply wire.ReplyHeader, body wire.Decoder) error {
	if reply.Xid == wire.XidEvent {
		return checkEvent(body)
	}
	if reply.Xid < 0 {
		return nil // the library ignores the rest
	}
	s.mu.Lock()
	request, ok := s.sent[reply.Xid]
	s.mu.Unlock()
	switch {
	case !ok:
		return fmt.Errorf("reply to request %d, which was never sent", reply.Xid)
	case reply.Code != wire.CodeOK:
		return nil
	}
	return checkReply(request.op, body)
}

func (s *socket) noteHandshake(body []byte) error {
	d := wire.Decoder{Rest: body}
	reply := d.ConnectReply()
	if d.Bad {
		return fmt.Errorf("malformed reply of %d bytes", len(body))
	}
	if reply.Session == 0 {
		s.mu.Lock()
		s.watching.forget()
		s.mu.Unlock()
		s.link.expired()
		s.kill() // what was read is still handed to the library
		return nil
	}
	session, err := s.link.established(reply.Session, reply.Timeout, s.shookAt)
	if err != nil {
		return err
	}
	s.session = session
	s.mu.Lock()
	s.watching.abandon()
	if s.watching.expectRewatch() {
		s.rewatch = make(chan struct{})
	}
	s.mu.Unlock()
	s.handshaken = true
	s.Conn.SetDeadline(time.Time{})
	return nil
}
