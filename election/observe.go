package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

// Leader returns who leads: the first in the queue, whose Token is its term. Where it can be
// reached is for its Label to say, which is set where it connects.
//
// It may be one that has not heard of it yet, or whose lease is over while the store has chosen
// nobody else; and the answer may be old when it comes. Only [Election.IsLeader] is certain, about
// this process.
//
// The error wraps [ErrNoLeader] if there is no candidate. Leader waits for a store that cannot be
// reached until ctx is done; the error then wraps its cause.
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

// Observe returns the leaders from now on, the present one first: each once, and none with a lower
// term than one before.
//
//	for leader, err := range e.Observe(ctx) {
//
// It looks once a second while the caller waits for the next one. A look reads the queue: one
// request, and on ZooKeeper another one for each candidate. A leader that comes and goes
// between two looks is not seen, nor is that there is none. The sequence lasts until ctx ends or the
// caller stops, also over times in which the store cannot be reached. An error, which no further
// look would change, is its last element.
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
