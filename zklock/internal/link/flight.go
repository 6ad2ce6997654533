package link

import (
	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/wire"
)

// The client library waits for the answer to each request before its caller can make the
// next one, and tells neither the transaction id of a reply nor the session that it came
// under. So the socket sends what belongs together by itself, in one write, under xids
// that the library does not use.

// firstXid is the first of them. They go down, away from those with a meaning of their own.
const firstXid = -1000

// A flight is requests that are sent together. The server executes and answers the requests
// of a session in the order in which they were sent.
type flight struct {
	requests []Request
	answers  []Answer
	left     int           // answers to come; guarded by socket.mu
	landed   chan struct{} // closed when there are none
}

// A seat is the place of a request in its flight.
type seat struct {
	*flight
	n int
}

// Ask waits for all the answers, or the end of the connection.
func (l *dialed) Ask(requests ...Request) []Answer {
	f := &flight{
		requests: requests, answers: make([]Answer, len(requests)),
		left: len(requests), landed: make(chan struct{}),
	}
	l.mu.Lock()
	s := l.socket
	l.mu.Unlock()
	if s == nil || !l.connected.IsSet() {
		f.cancel()
		return f.answers
	}
	<-s.open
	s.launch(f)
	<-f.landed
	return f.answers
}

// cancel answers that nothing was sent.
func (f *flight) cancel() {
	for i := range f.answers {
		f.answers[i].Err = zk.ErrNoServer
	}
	close(f.landed)
}

func (s *socket) launch(f *flight) {
	s.writing <- struct{}{}
	defer func() { <-s.writing }()
	frames := s.board(f)
	if frames == nil {
		f.cancel()
		return
	}
	if _, err := s.Conn.Write(frames); err != nil {
		s.broke(err)
	}
}

// board notes the requests of a flight before they are sent, and returns their frames; none
// if the connection has ended.
func (s *socket) board(f *flight) []byte {
	now := s.dialed.link.Now() // before the write: a lease may only start too early
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil
	}
	frames := s.frames[:0]
	for i, q := range f.requests {
		if s.lastXid--; s.lastXid > firstXid { // below the lowest: the first ones were answered long ago
			s.lastXid = firstXid
		}
		h := wire.RequestHeader{Xid: s.lastXid, Op: q.op()}
		body := frames.Frame(func(e *wire.Encoder) {
			e.RequestHeader(h)
			q.encode(e)
		})
		d := wire.Decoder{Rest: body}
		s.noteLocked(d.RequestHeader(), d, now)
		s.aloft[h.Xid] = seat{f, i}
	}
	s.frames = frames
	return frames
}

// land takes the answer to a request of a flight.
func (s *socket) land(reply wire.ReplyHeader, body wire.Decoder) {
	s.mu.Lock()
	at, ok := s.aloft[reply.Xid]
	delete(s.aloft, reply.Xid)
	s.mu.Unlock()
	if !ok {
		return // the connection was given up meanwhile
	}
	a := &at.answers[at.n]
	a.Zxid, a.Session = reply.Zxid, s.session
	if reply.Code == wire.CodeOK {
		at.requests[at.n].decode(&body, a)
	} else {
		a.Err = codeError(reply.Code)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at.arrivedLocked()
}

// ground follows the end of the connection: there will be no more answers.
func (s *socket) ground() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	for _, at := range s.aloft {
		at.answers[at.n].Err = zk.ErrConnectionClosed
		at.arrivedLocked()
	}
	clear(s.aloft)
}

func (f *flight) arrivedLocked() {
	if f.left--; f.left == 0 {
		close(f.landed)
	}
}
