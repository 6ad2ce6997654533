package link

import "github.com/tierlock/tierlock/internal/wire"

// xidRewatch is that of the socket's own requests, one that the library never uses.
const xidRewatch = -8

// rewatch sets the watches again on a new connection, before any request but those
// that present credentials: a server may want these to show an event. As requests are
// answered in order, every reply then comes after the events that it may make one
// expect, and the zxid of a reply says what has been seen.
//
// The library knows nothing of these watches, and could not do it that well. It builds its
// SetWatches from a zxid that its reader already advances (614, 849); sends it behind the requests
// that have queued up; sends one above 128 KB in parts, each after the answer to the one before;
// and drops what is left of it when the connection breaks (528, 650) or the next dial fails (376).
func (s *socket) rewatch() error {
	select {
	case <-s.open:
		return nil // done
	default:
	}
	s.mu.Lock()
	requests := s.mirror.restore()
	s.mu.Unlock()
	for _, q := range requests {
		var e wire.Encoder
		e.RequestHeader(wire.RequestHeader{Xid: xidRewatch, Op: wire.OpSetWatches})
		e.SetWatches(q)
		if _, err := s.Conn.Write(wire.Frame(e)); err != nil {
			return err
		}
	}
	return nil
}

// rewatched takes the answer. A server that refuses may do so again and again, so the
// connection goes on: whoever waits for an event looks again after a while.
func (s *socket) rewatched(reply wire.ReplyHeader) {
	if reply.Code != wire.CodeOK {
		s.dialed.link.config.Logger.Warn("zklock: the server refused to set watches again", "code", reply.Code)
		s.dialed.link.Events.lapse()
	}
}
