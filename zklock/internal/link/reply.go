package link

import (
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// noteReply returns what the library is to see of a reply or an event.
func (s *socket) noteReply(frame []byte) ([]byte, error) {
	d := wire.Decoder{Rest: wire.Body(frame)}
	reply := d.ReplyHeader()
	if d.Bad {
		return nil, fmt.Errorf("reply of %d bytes", len(frame))
	}
	if reply.Xid == xidRewatch {
		s.rewatched(reply)
		return nil, nil // it asked for nothing
	}
	if err := s.vet(reply, d); err != nil {
		return nil, err
	}
	s.mu.Lock()
	heard, proven := time.Duration(0), false
	if reply.Xid == wire.XidEvent {
		s.mirror.fired(d)
	} else {
		heard, proven = s.answeredLocked(reply, d)
	}
	s.mu.Unlock()
	if proven {
		s.session.Renew(heard)
	}
	if reply.Xid <= firstXid {
		s.land(reply, d)
		return nil, nil
	}
	return frame, nil
}

// vet refuses what the library must not see. The library takes a reply for the one it
// waits for even before it has written the request.
func (s *socket) vet(reply wire.ReplyHeader, body wire.Decoder) error {
	if reply.Xid == wire.XidEvent {
		return checkEvent(body)
	}
	if reply.Xid < 0 && reply.Xid > firstXid {
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

// answeredLocked notes an answer, and returns what it proves. Only success proves
// anything: a follower makes some errors by itself.
func (s *socket) answeredLocked(reply wire.ReplyHeader, body wire.Decoder) (heard time.Duration, proven bool) {
	request, ok := s.sent[reply.Xid]
	delete(s.sent, reply.Xid)
	s.mirror.answered(reply)
	switch {
	case !ok || reply.Code != wire.CodeOK:
	case request.op == wire.OpSync:
		s.proof.synced(request, s.dialed.link.Now())
	case committed(request.op, body):
		return s.proof.wrote(request)
	}
	return 0, false
}

func (s *socket) noteHandshake(body []byte) error {
	d := wire.Decoder{Rest: body}
	reply := d.ConnectReply()
	if d.Bad {
		return fmt.Errorf("malformed reply of %d bytes", len(body))
	}
	if reply.Session == 0 {
		s.mu.Lock()
		s.mirror.forget()
		s.mu.Unlock()
		s.dialed.expired()
		s.kill() // what was read is still handed to the library
		return nil
	}
	session, err := s.dialed.established(reply.Session, reply.Timeout, s.shookAt)
	if err != nil {
		return err
	}
	s.session = session
	s.mu.Lock()
	s.proof = opened(s.shookAt, s.dialed.link.Now(), halfTick(session.Negotiated()))
	s.mirror.abandon()
	s.mu.Unlock()
	s.handshaken = true
	s.Conn.SetDeadline(time.Time{})
	return nil
}
