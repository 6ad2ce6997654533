package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// try runs one trial in an ensemble that serves.
func (l *lab) try(ctx context.Context, name string, number int) outcome {
	i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
	t := &trial{
		lab:    l,
		fault:  faults[i],
		path:   fmt.Sprintf("/partition/%s-%d", name, number),
		random: rand.New(rand.NewPCG(l.plan.Seed, uint64(i<<32|number))),
	}
	o, err := t.run(ctx)
	o.Fault, o.Number = name, number
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

type trial struct {
	lab    *lab
	fault  fault
	path   string
	random *rand.Rand
}

func (t *trial) run(ctx context.Context) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	victim, err := t.victim()
	if err != nil {
		return o, err
	}
	writes := t.random.IntN(2) == 0
	holder, err := startLocker(job{Servers: t.addrs(victim), Path: t.path, Writes: writes})
	if err != nil {
		return o, err
	}
	defer holder.kill()
	if _, err := holder.await(ctx, held); err != nil {
		return o, fmt.Errorf("holder: %w", err)
	}
	waiter, err := startLocker(job{Servers: t.addrs(others(victim)...), Path: t.path})
	if err != nil {
		return o, err
	}
	defer waiter.kill()
	if _, err := waiter.await(ctx, queued); err != nil {
		return o, fmt.Errorf("waiter: %w", err)
	}
	// A moment in the servers' ticks and between the heartbeats, and enough of both
	// before it.
	pause(ctx, between(t.random, sessionTimeout/4, sessionTimeout/2))
	o, err = t.measure(ctx, victim, holder, waiter)
	if writes {
		o.Choice += " (holder writes)"
	}
	return o, err
}

// measure lets the fault loose, and learns from the processes who knew what when.
func (t *trial) measure(ctx context.Context, victim int, holder, waiter *locker) (o outcome, err error) {
	begin := now()
	over := make(chan error, 1)
	go func() {
		choice, err := t.fault.strike(ctx, t.lab, victim, t.random)
		o.Choice = choice
		over <- err
	}()
	acquired, err1 := waiter.await(ctx, held)
	lost, err2 := awaitLoss(ctx, holder)
	if err := errors.Join(err1, err2, <-over); err != nil {
		return o, err
	}
	if lost < begin {
		return o, errors.New("the holder lost the lock before the fault")
	}
	o.Lost, o.Acquired = lost.sub(begin), acquired.sub(begin)
	return o, nil
}

// awaitLoss returns when the holder knew of its loss. The wait begins when the other
// process has the lock; a holder that still believes in it long after counts as one that
// learns at the end of the wait.
func awaitLoss(ctx context.Context, holder *locker) (instant, error) {
	wait, cancel := context.WithTimeout(ctx, 2*sessionTimeout)
	defer cancel()
	at, err := holder.await(wait, lost)
	if wait.Err() != nil && ctx.Err() == nil {
		return now(), nil
	}
	return at, err
}

// victim chooses whom the fault is to befall.
func (t *trial) victim() (int, error) {
	modes := t.lab.modes(1, 2, 3)
	leader := slices.Index(modes, "leader") + 1
	if leader == 0 {
		return 0, fmt.Errorf("no leader among %q", modes)
	}
	if t.fault.onLeader {
		return leader, nil
	}
	followers := others(leader)
	return followers[t.random.IntN(len(followers))], nil
}

func (t *trial) addrs(ids ...int) (addrs []string) {
	for _, id := range ids {
		addrs = append(addrs, t.lab.server(id).Addr())
	}
	return addrs
}
