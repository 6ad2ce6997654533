package zklock

import (
	"context"
	"errors"
	"time"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/zklock/internal/link"
)

// A vigil is the wait of whoever has the turn, for enough permits to become free. Nobody else may
// take any meanwhile, so what was free once stays so.
type vigil struct {
	*semaphore
	turn         *Node
	demand       *second.Demand
	contested    <-chan struct{}
	changed      mutexbool.Bool // look again
	leases, path link.Watcher
}

func (s *semaphore) newVigil(turn *Node, d *second.Demand) *vigil {
	v := &vigil{semaphore: s, turn: turn, demand: d}
	v.leases.Notify, v.path.Notify = v.changed.Set, v.changed.Set
	return v
}

// keep returns what was taken. The turn is given up in any case; with errGone it was lost.
func (v *vigil) keep(ctx context.Context) ([]*Node, error) {
	defer v.end()
	v.demand.Contest(v.turn.beside)
	for pace := retry.New(); ; {
		v.changed.Clear() // before the look: what comes later ends the wait
		seen, err := v.look(v)
		if err == nil {
			err = v.mark(seen)
		}
		again := v.turn.session.Recheck() // watches can be lost
		switch {
		case err == nil:
			pace.Reset()
		case classify(err) == permanent, errors.Is(err, second.ErrPermits):
			v.turn.Release()
			return nil, err
		default:
			again, seen.free = pace.NextBackOff(), 0
		}
		k, err := v.wait(ctx, seen.free, again)
		switch {
		case err != nil:
			v.turn.Release()
			return nil, err
		case k > 0:
			return v.exchange(ctx, v.turn, k, seen)
		}
	}
}

// wait returns how many of the free permits are wanted, or none when it is time to look again.
func (v *vigil) wait(ctx context.Context, free int, again time.Duration) (k int, err error) {
	timer := time.NewTimer(again)
	defer timer.Stop()
	for {
		v.demand.Changed.Clear() // before the question
		if k := v.demand.Take(min(free, v.Most())); k > 0 {
			return k, nil
		}
		if v.contested == nil { // whoever does not wait needs not know
			v.contested = v.turn.contested.C()
		}
		select {
		case <-v.demand.Changed.C():
		case <-v.contested:
			v.demand.Contest(1)
			v.contested = make(chan struct{})
		case <-v.changed.C():
			return 0, nil
		case <-timer.C:
			return 0, nil
		case <-v.turn.Lost():
			return 0, errGone
		case <-ctx.Done():
			return 0, v.link.Explain(context.Cause(ctx))
		}
	}
}

func (v *vigil) end() {
	v.link.Events.Ignore(v.semaphore.leases.path, &v.leases)
	v.link.Events.Ignore(v.semaphore.path, &v.path)
}
