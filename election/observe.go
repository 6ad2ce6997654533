package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

// Leader returns the first candidate in the queue. Its Token is the term. To publish an address of the
// leader, set it as the label of the process ([tier.WithLabel]).
//
// The answer may be out of date. The candidate may not know yet that it leads, or its lease may have
// ended. Only [Election.IsLeader], called in the leading process, is certain.
//
// Leader takes one request, and waits for a store that cannot be reached until ctx ends; the error then
// wraps the cause of ctx. Without a candidate the error wraps [ErrNoLeader].
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

// Observe returns a sequence of leaders, beginning with the present one. Each leader comes once, and
// terms never decrease.
//
//	for leader, err := range e.Observe(ctx) {
//
// Observe polls the queue once a second while the caller waits for the next element. A poll takes one
// request, and on ZooKeeper another one for each candidate. Leaders that come and go between two polls
// are not reported, and neither are periods without a leader. The sequence ends when ctx ends, when the
// caller stops, or after an error that polling again cannot fix. It survives outages of the store.
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

// succeeds tells a new leader from the last one, and from one before it, which a server that lags
// still shows. Only to those with enough permissions the store tells tokens.
func succeeds(leader, last tier.Contender) bool {
	if leader.Token == 0 || last.Token == 0 {
		return leader.ID != last.ID
	}
	return leader.Token > last.Token
}
