package zklock

import "time"

// keep sends heartbeats while anything is held, and looks after the held nodes when the
// connection comes back.
func (l *dialed) keep() {
	timer := time.NewTimer(l.heartbeat())
	defer timer.Stop()
	for {
		select {
		case <-l.client.ctx.Done():
			return
		case <-l.verify.C():
			l.verify.Clear()
			l.look(everyNode)
		case <-timer.C:
			l.look(oneNode)
		}
		timer.Reset(l.heartbeat())
	}
}

// heartbeat is the interval at which the lease is renewed, a fraction of it however large
// the margin. The library's own pings come only every third of the session timeout.
func (l *dialed) heartbeat() time.Duration {
	timeout := l.client.options.sessionTimeout
	if s := l.session(); s != nil {
		timeout = s.negotiated()
	}
	lease := timeout - l.client.margin(timeout)
	return max(min(timeout/6, 2*time.Second, lease/3), time.Millisecond)
}

const (
	oneNode   = 1
	everyNode = 1 << 30
)

// look checks up to n of the held nodes, any of them.
func (l *dialed) look(n int) {
	s := l.session()
	if s == nil || l.err() != nil {
		return
	}
	for i, node := range s.holders() {
		if i == n {
			return
		}
		node.check()
	}
}
