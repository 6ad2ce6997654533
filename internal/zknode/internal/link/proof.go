package link

import (
	"time"

	"github.com/tierlock/tierlock/internal/wire"
)

// A proof works out what the answers on one connection prove about the session: since when the leader, which may expire the session, has
// heard of it. The send time of the newest answer proves nothing, since a follower answers reads and pings by itself. ZooKeeper 3.8 and
// 3.9 guarantee the following:
//
//   - A follower notes each request of a session, and reports what it has noted when the
//     leader pings it, every half tick (Learner.ping, Leader.lead). The leader's clock of
//     the session starts when that report arrives (LearnerHandler, PING).
//   - What the leader sends a follower arrives in order, and so does what the follower
//     sends. A sync is answered by the leader (Leader.processSync), so when one that was
//     sent half a tick after another answer is answered itself, a ping came before it,
//     and the report with that other request is on its way.
//   - Whatever is forwarded to the leader after that arrives behind the report. And a
//     write that was committed precedes any successor of that leader, who starts the
//     clocks of all sessions anew.
//
// Three answers in a row therefore prove that the leader has heard of the first request: to a sync, to another sync at least half a tick
// later, and to a write that was sent after the second answer. A sync alone proves nothing: a deposed leader that does not know of its
// deposition still answers its clients.
type proof struct {
	halfTick time.Duration // the servers' at most
	requests int           // sent on this connection

	sync, answered time.Duration // the newest sync that counts: when it was sent, and answered
	last, before   report        // the newest, and the one before, for writes that were on their way
}

// A report says that the leader knows of a request that was sent at a time. A report is confirmed once the leader answers a write behind
// a certain number of requests.
type report struct {
	of     time.Duration
	behind int
}

// A sentRequest is a request that has not been answered.
type sentRequest struct {
	op int32
	n  int // its place among those of the connection
	at time.Duration
}

// halfTick is an upper bound of half a tick of the servers. Servers do not report their tick; it is assumed to be at most a quarter of
// the session timeout.
func halfTick(timeout time.Duration) time.Duration { return timeout / 8 }

// opened starts a proof with the answer to a handshake. If the handshake resumed a session, the follower has asked the leader, which
// starts its timer then (LearnerHandler, REVALIDATE). The first write shows whether that is still the leader.
func opened(sent, answered, halfTick time.Duration) proof {
	return proof{halfTick: halfTick, sync: sent, answered: answered, last: report{of: sent}, before: report{of: sent}}
}

// sent notes a request.
func (p *proof) sent(op int32, at time.Duration) sentRequest {
	p.requests++
	return sentRequest{op, p.requests, at}
}

// synced records the answer to a sync. A sync too soon after the previous one proves nothing new.
func (p *proof) synced(q sentRequest, answered time.Duration) {
	if q.at < p.answered+p.halfTick {
		return
	}
	p.before, p.last = p.last, report{p.sync, p.requests}
	p.sync, p.answered = q.at, answered
}

// wrote records the answer to a committed write. wrote returns the time since which the leader is known to have heard of the session.
func (p *proof) wrote(q sentRequest) (heard time.Duration, ok bool) {
	for _, r := range []report{p.last, p.before} {
		if q.n > r.behind {
			return r.of, true
		}
	}
	return 0, false
}

// committed reports whether a successful answer belongs to a write that the servers have committed. A multi that failed shows that in its
// body, by the type of its first result.
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
