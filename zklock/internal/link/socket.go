package link

import (
	"bufio"
	"errors"
	"fmt"
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
//   - It reads the frames, and so learns the negotiated timeout, the session id, and when
//     which request was sent and answered: the only honest base of a lease.
//   - It puts its own deadline on the handshake. The library's (683) is 6.67 session
//     timeouts per address, enough for one frozen server to cost the session.
//   - Its Write never fails but kills the connection, so that each failure surfaces
//     once, as zk.ErrConnectionClosed. A failed write while credentials are presented
//     again blocks the library for ever (527, go-zookeeper#163).
//   - It reads whole frames under one deadline (the library clears it after the length,
//     685), bounds their size (690 allocates what it is told; 831 panics on a short one),
//     and looks at every count in them first.
//   - It closes the connection of an expired session, which the library forgets (435).
//   - It sets the watches again after a reconnect, which the library does too late, in
//     parts, or not at all; see rewatch.
//   - It sends requests together that the library would send one by one; see flight.
type socket struct {
	net.Conn
	server string // as it was named
	dialed *dialed
	reader *bufio.Reader // of Conn; used by the reading goroutine only
	frame  []byte        // what is left of the frame being read
	buffer []byte        // of frame, used again and again

	// Set before the first reply is read, by the goroutine that shakes hands; the
	// library starts the others after that.
	session    *Session
	handshaken bool
	shookAt    time.Duration // when the handshake was sent

	// The library has sent a request, and so its credentials before; the watches are set
	// again. Or the connection has ended.
	open    chan struct{}
	opening func() // closes it

	writing chan struct{} // full while somebody writes
	frames  wire.Encoder  // of the write, used again and again

	mu      sync.Mutex            // guards the fields below
	sent    map[int32]sentRequest // by xid; requests without a reply
	aloft   map[int32]seat        // by xid; those of them that are our own
	lastXid int32                 // of our own
	dead    bool                  // the connection has ended
	proof   proof                 // that the session lives
	mirror  *watchMirror          // handed on from socket to socket of the library's connection

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
		sent:    make(map[int32]sentRequest),
		aloft:   make(map[int32]seat),
		lastXid: firstXid,
		mirror:  l.mirror,
	}
	s.opening = sync.OnceFunc(func() { close(s.open) })
	s.kill = sync.OnceFunc(func() {
		conn.Close()
		s.ground()
		s.opening()
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

// Write sends one frame of the library, which writes each with one call (676, 751, 781).
func (s *socket) Write(frame []byte) (int, error) {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	// The clock is read before the write: a lease may only start too early.
	send, now := s.send, s.dialed.link.Now()
	if !s.handshaken {
		send = s.shakeHands
	}
	if err := send(frame, now); err != nil {
		s.broke(err)
	}
	return len(frame), nil
}

// broke follows a write that failed.
func (s *socket) broke(err error) {
	s.dialed.trouble(fmt.Errorf("write to %s: %w", s.server, err))
	s.kill()
}

func (s *socket) shakeHands(frame []byte, now time.Duration) error {
	s.mu.Lock()
	seen := s.mirror.seen
	s.mu.Unlock()
	s.shookAt = now
	_, err := s.Conn.Write(s.dialed.introduce(frame, seen, now))
	return err
}

func (s *socket) send(frame []byte, now time.Duration) error {
	d := wire.Decoder{Rest: wire.Body(frame)}
	h := d.RequestHeader()
	s.mu.Lock()
	s.noteLocked(h, d, now)
	s.mu.Unlock()
	if h.Op != wire.OpSetAuth {
		if err := s.rewatch(); err != nil {
			return err
		}
		defer s.opening()
	}
	_, err := s.Conn.Write(frame)
	return err
}

// noteLocked remembers what is sent, and when.
func (s *socket) noteLocked(h wire.RequestHeader, body wire.Decoder, now time.Duration) {
	s.sent[h.Xid] = s.proof.sent(h.Op, now)
	s.mirror.requested(h, body)
}

func (s *socket) Read(p []byte) (int, error) {
	for len(s.frame) == 0 {
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
// sees its first byte, if it is to see it.
func (s *socket) readFrame() error {
	if !s.handshaken {
		if err := otherProtocol(s.reader); err != nil {
			return s.readError(err)
		}
	}
	frame, err := wire.ReadFrame(s.reader, s.buffer, maxFrame)
	if err != nil {
		return s.readError(err)
	}
	s.buffer = frame
	if !s.handshaken {
		err = s.noteHandshake(wire.Body(frame))
	} else {
		frame, err = s.noteReply(frame)
	}
	if err != nil {
		return s.readError(err)
	}
	s.frame = frame
	return nil
}

func (s *socket) readError(err error) error {
	if s.handshaken {
		if !errors.Is(err, net.ErrClosed) {
			s.dialed.trouble(fmt.Errorf("connection to %s lost: %w", s.server, err))
		}
		return err
	}
	s.dialed.trouble(fmt.Errorf("handshake with %s: %w", s.server, handshakeError(err, s.dialed.link.config.TLS != nil)))
	return err
}
