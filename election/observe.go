package election

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

// Leader returns the first candidate in the queue. The Token of this candidate is the term. The Label can be an address that the process
// knew when it connected ([tier.WithLabel]). Leader does not show what the leader has published; [Election.Observe] does.
//
// The answer may be out of date. The candidate may not have learned yet that it leads, or its lease may have ended. Only
// [Election.IsLeader] in the leading process gives a certain answer.
//
// Leader costs as much as [tier.Mutex.Contenders], and has the same errors. While the store cannot be reached, Leader blocks until ctx
// ends; the error then wraps the cause of ctx. If there is no candidate, the error wraps [ErrNoLeader].
func (e *Election) Leader(ctx context.Context) (tier.Contender, error) {
	queue, err := e.mutex.Contenders(ctx)
	switch {
	case err != nil:
		return tier.Contender{}, err
	case len(queue) == 0:
		return tier.Contender{}, e.failure("leader of", ErrNoLeader)
	}
	return queue[0], nil
}

// An Observation is a leader, together with the data that it has published.
type Observation struct {
	tier.Contender
	// Published is what this leader published last ([Election.Publish]), as far as the observer knows. It is nil until the leader publishes,
	// even if an earlier leader has published something.
	Published []byte
}

// Observe returns a sequence of leaders, beginning with the current leader. Each element contains the data that the leader has published. A
// leader appears when Observe first sees it, and again after each change of the data that it has published. Terms never decrease.
//
//	for leader, err := range e.Observe(ctx) {
//
// Observe polls the store once a second while the caller waits for the next element. Therefore a change appears within about a second, if
// the store answers. If several changes happen between two polls, only the newest appears. Observe can therefore miss a leader with a short
// term, or data that is soon replaced. Periods without a leader are not reported.
//
// A poll sends one request for the queue, and on ZooKeeper one more request for each candidate. If there is a leader, the poll loads what
// the leader has published. This load costs as much as [tier.Mutex.Load]: a small write on every store but etcd. Observe loads nothing if
// it cannot see the token of the leader, because the leader uses another library or a permission is missing.
//
// The sequence ends when ctx ends, when the caller stops, or after an error that another poll cannot fix, such as a missing permission to
// read values. An outage of the store does not end the sequence.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Observation, error] {
	return func(yield func(Observation, error) bool) {
		var last Observation
		for {
			now, changed, err := e.poll(ctx, last)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(Observation{}, err)
				return
			case changed:
				last = now
				last.Published = bytes.Clone(now.Published) // the caller may change its own slice
				if !yield(now, nil) {
					return
				}
			}
			if retry.Pause(ctx, time.Second) != nil {
				return
			}
		}
	}
}

// poll returns the leader with what it has published, and whether that has changed since the last observation.
func (e *Election) poll(ctx context.Context, last Observation) (now Observation, changed bool, err error) {
	now.Contender, err = e.Leader(ctx)
	if errors.Is(err, ErrNoLeader) {
		return last, false, nil
	} else if err != nil {
		return last, false, err
	}
	changed = succeeds(now.Contender, last.Contender)
	if !changed {
		if now.Token < last.Token { // a server that lags behind still shows an earlier leader
			return last, false, nil
		}
		now.Published = last.Published
	}
	if now.Token == 0 { // without the token, it is unknown who has published the value
		return now, changed, nil
	}
	// If the value has a lower token, an earlier leader has published it. If it has a higher token, a later leader has published it; the next
	// poll shows that leader.
	v, err := e.mutex.Load(ctx)
	switch {
	case errors.Is(err, tier.ErrNoValue):
		err = nil
	case err == nil && v.Token == now.Token && !bytes.Equal(v.Data, now.Published):
		now.Published, changed = v.Data, true
	}
	return now, changed, err
}

// succeeds reports whether leader is a new leader. It is not new if it is the last leader, or an earlier one, which a server that lags
// behind may still show. The token is 0 if this user may not read it.
func succeeds(leader, last tier.Contender) bool {
	if leader.Token == 0 || last.Token == 0 {
		return leader.ID != last.ID
	}
	return leader.Token > last.Token
}
