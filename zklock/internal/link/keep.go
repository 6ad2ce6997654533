package link

import "time"

// keep proves to the server, and to us, that the session lives: every eighth of its
// timeout a sync, and a write behind it while a node is queued or held. Without the
// former a node could not be granted by its create alone after a quiet time; see [proof].
func (l *dialed) keep() {
	if l.awaitConnection(l.link.ctx) != nil { // the pace is what was granted, not what was asked for
		return
	}
	timer := time.NewTimer(l.heartbeat())
	defer timer.Stop()
	for {
		select {
		case <-l.link.ctx.Done():
			return
		case <-timer.C:
		}
		synced := l.disconnected() == nil && l.sync()
		timer.Reset(l.heartbeat()) // before the write: a slow one takes none of the pace
		if synced {
			l.prove()
		}
	}
}

// heartbeat is the pace of keep, and no shorter than half a tick.
func (l *dialed) heartbeat() time.Duration {
	timeout := l.link.config.SessionTimeout
	if s := l.Session(); s != nil {
		timeout = s.Negotiated()
	}
	return halfTick(timeout)
}

func (l *dialed) sync() bool {
	_, err := l.link.Conn.Sync("/")
	return err == nil
}

// prove sends a write that changes nothing, unless there is nothing to lose.
func (l *dialed) prove() {
	if s := l.Session(); s != nil {
		if n := s.anyMember(); n != nil {
			n.Prove()
		}
	}
}

// reopen has the library send a request when the connection has come back, which nobody gets
// ahead of, see [socket]. It waits for no answer to anything else: that may need the request.
func (l *dialed) reopen() {
	for l.verify.Wait(l.link.ctx) == nil {
		l.verify.Clear()
		var held []Member // before the connection came; the others have just been heard of
		if s := l.Session(); s != nil {
			held = s.Held()
		}
		l.sync()
		l.link.Spawn(func() { l.review(held) })
	}
}

// review makes the answer to the handshake count for the lease, and looks after nodes.
func (l *dialed) review(held []Member) {
	l.prove()
	for _, n := range held {
		n.Check()
	}
}
