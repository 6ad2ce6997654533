package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

// Leader returns the first candidate in the queue. The Token of this candidate is the term. To publish the address of the leader, set the
// address as the label of the process ([tier.WithLabel]).
//
// The answer may be out of date. The candidate may not have learned yet that it leads, or its lease may have ended. Only
// [Election.IsLeader] in the leading process is certain.
//
// Leader sends one request. While the store cannot be reached, Leader blocks until ctx ends; the error then wraps the cause of ctx. If
// there is no candidate, the error wraps [ErrNoLeader].
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

// Observe returns a sequence of leaders, beginning with the current leader. Each leader appears once, and terms never decrease.
//
//	for leader, err := range e.Observe(ctx) {
//
// Observe polls the queue once a second while the caller waits for the next element. A poll sends one request, and on ZooKeeper one more
// request for each candidate. A leader whose term begins and ends between two polls is not reported. Periods without a leader are not
// reported. The sequence ends when ctx ends, when the caller stops, or after an error that another poll cannot fix. An outage of the store
// does not end the sequence.
func (e *Election) Observe(ctx context.Context) iter.Seq2[tier.Contender, error] {
	return func(yield func(tier.Contender, error) bool) {
		var last tier.Contender
		for {
			leader, err := e.Leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, ErrNoLeader):
			case err != nil:
				yield(leader, err)
				return
			case succeeds(leader, last):
				last = leader
				if !yield(leader, nil) {
					return
				}
			}
			if retry.Pause(ctx, time.Second) != nil {
				return
			}
		}
	}
}

// succeeds reports whether leader is a new leader. It is not new if it is the last leader, or an earlier one that a server that lags behind
// still shows. The store shows tokens only to users with enough permissions.
func succeeds(leader, last tier.Contender) bool {
	if leader.Token == 0 || last.Token == 0 {
		return leader.ID != last.ID
	}
	return leader.Token > last.Token
}
