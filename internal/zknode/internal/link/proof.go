package link

import (
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// A proof finds out what the answers on one connection prove about the session. The leader may expire the session, and the proof shows
// since when the leader has heard of the session. The send time of the newest answered request proves nothing, because a follower answers
// reads and pings by itself. ZooKeeper 3.8 and 3.9 guarantee the following:
//
//   - A follower notes each request of a session. When the leader pings the follower, every
//     half tick, the follower reports what it has noted (Learner.ping, Leader.lead). The
//     leader starts its clock for the session when that report arrives (LearnerHandler, PING).
//   - The leader and a follower receive each other's messages in the order in which they were
//     sent. The leader answers each sync (Leader.processSync). If a sync was sent half a tick
//     after another answer, the leader pings the follower before it answers that sync. The
//     report about the earlier request is then on its way.
//   - What the follower forwards to the leader after that arrives behind the report. A write
//     that was committed precedes any successor of that leader, and a new leader starts the
//     clocks of all sessions anew.
//
// Therefore three answers in a row prove that the leader has heard of the first request: the answer to a sync, the answer to another sync
// at least half a tick later, and the answer to a write that was sent after the second answer. A sync alone proves nothing: a deposed
// leader that does not know of its deposition still answers its clients.
type proof struct {
	halfTick time.Duration // at most half a tick of the servers
	requests int           // the number of requests sent on this connection

	sync, answered time.Duration // when the newest sync that counts was sent, and when it was answered
	last, before   report        // the newest report, and the previous one, for writes that were sent before the newest report
}

// A report says that the leader knows of a request, and when that request was sent. The answer of the leader to a write confirms the
// report, if the number of the write is higher than behind.
type report struct {
	of     time.Duration // when that request was sent
	behind int           // the number of requests that were sent before the report
}

// A sentRequest is a request that has not been answered.
type sentRequest struct {
	op int32
	n  int // the number of the request on its connection
	at time.Duration
}

// halfTick is an upper bound of half a tick of the servers. Servers do not report their tick; this package assumes a tick of at most a
// quarter of the session timeout.
func halfTick(timeout time.Duration) time.Duration { return timeout / 8 }

// The function opened starts a proof with the answer to a handshake. If the handshake resumed a session, the follower has asked the leader.
// The leader then starts its timer for the session (LearnerHandler, REVALIDATE). The first write shows whether that leader is still the
// leader.
func opened(sent, answered, halfTick time.Duration) proof {
	return proof{halfTick: halfTick, sync: sent, answered: answered, last: report{of: sent}, before: report{of: sent}}
}

// The method sent records a request.
func (p *proof) sent(op int32, at time.Duration) sentRequest {
	p.requests++
	return sentRequest{op, p.requests, at}
}

// The method synced records the answer to a sync. A sync too soon after the previous one proves nothing new.
func (p *proof) synced(q sentRequest, answered time.Duration) {
	if q.at < p.answered+p.halfTick {
		return
	}
	p.before, p.last = p.last, report{p.sync, p.requests}
	p.sync, p.answered = q.at, answered
}

// The method wrote records the answer to a committed write. It returns the time after which the leader has certainly heard of the session.
func (p *proof) wrote(q sentRequest) (heard time.Duration, ok bool) {
	for _, r := range []report{p.last, p.before} {
		if q.n > r.behind {
			return r.of, true
		}
	}
	return 0, false
}

// The function committed reports whether a successful answer belongs to a write that the servers have committed. A multi may have failed
// all the same: the type of its first result, in its body, shows that.
func committed(op int32, body wire.Decoder) bool {
	switch op {
	case wire.OpCreate, wire.OpDelete, wire.OpSetData:
		return true
	case wire.OpMulti:
		first := body.Int32()
		return !body.Bad && first != wire.OpError
	}
	return false
}
