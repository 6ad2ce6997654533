package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// try runs one trial on an ensemble that serves requests. If a trial shows nothing because the machine was too busy, try repeats it. try
// returns an error if the ensemble does not serve requests any more.
func (l *lab) try(ctx context.Context, name string, number int) (o outcome, err error) {
	i := slices.Index(l.site.faultNames(), name)
	random := rand.New(rand.NewPCG(l.plan.Seed, uint64(i)<<32|uint64(number)))
	for again := range 3 {
		if err := l.settle(ctx); err != nil {
			return o, err
		}
		t := &trial{l, l.site.faults[i], fmt.Sprintf("/partition/%s-%d-%d", name, number, again), random}
		if o, err = t.run(ctx); !errors.Is(err, errNotHeld) {
			break
		}
	}
	o.Fault, o.Number = name, number
	if err != nil {
		o.Error = err.Error()
	}
	return o, nil
}

// errNotHeld is the error if the holder lost the lock before the fault, because it could not renew its lease in time.
var errNotHeld = errors.New("the holder lost the lock before the fault")

type trial struct {
	lab    *lab
	fault  fault
	path   string
	random *rand.Rand
}

func (t *trial) run(ctx context.Context) (o outcome, err error) {
	victim, mode, err := t.victim()
	if err != nil {
		return o, err
	}
	writes := t.lab.site.write != nil && (t.fault.whileWriting || t.random.IntN(2) == 0)
	holder, err := startLocker(job{Store: t.lab.plan.Store, Servers: t.holderAddrs(victim), Path: t.path, Writes: writes,
		Halted: t.fault.halting})
	if err != nil {
		return o, err
	}
	defer holder.kill()
	t.lab.holder = holder
	if _, err := holder.await(ctx, held, patience); err != nil {
		return o, fmt.Errorf("holder: %w", err)
	}
	waiter, err := startLocker(job{Store: t.lab.plan.Store, Servers: t.addrs(t.lab.besides(victim)...), Path: t.path})
	if err != nil {
		return o, err
	}
	defer waiter.kill()
	if _, err := waiter.await(ctx, queued, patience); err != nil {
		return o, fmt.Errorf("waiter: %w", err)
	}
	// The fault begins at a random moment within the servers' ticks and the interval between heartbeats, after several of both.
	clock.Sleep(between(t.random, sessionTimeout/4, sessionTimeout/2), ctx.Done())
	o, err = t.measure(ctx, victim, holder, waiter)
	if t.fault.on == anyone {
		o.Choice = strings.TrimSuffix(mode+", "+o.Choice, ", ")
	}
	if writes {
		o.Choice += " (holder writes)"
	}
	return o, err
}

// measure injects the fault. It collects from the holder when it knew of the loss, and from the waiter when it had the lock.
func (t *trial) measure(ctx context.Context, victim int, holder, waiter *locker) (o outcome, err error) {
	begin := clock.Now()
	over := make(chan error, 1)
	go func() {
		choice, err := t.fault.strike(ctx, t.lab, victim, t.random)
		o.Choice = choice
		over <- err
	}()
	acquired, err1 := waiter.await(ctx, held, patience)
	known, err2 := holder.await(ctx, lost, 2*sessionTimeout)
	err3 := <-over
	switch {
	case err1 == nil && errors.Is(err2, errLate):
		known, err2 = clock.Now(), nil // the holder still believes in the lock
	case errors.Is(err1, errLate) && err2 == nil:
		err1 = fmt.Errorf("waiter: %w; the holder lost the lock after %.3f s", err1, known.Sub(begin).Seconds())
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return o, err
	}
	if known < begin {
		return o, errNotHeld
	}
	o.Lost, o.Acquired = known.Sub(begin), acquired.Sub(begin)
	return o, nil
}

// victim chooses the server that the fault hits. It returns the server's number and mode.
func (t *trial) victim() (id int, mode string, err error) {
	modes := t.lab.modes(t.lab.everybody()...)
	lead := slices.Index(modes, "leader") + 1
	switch {
	case lead == 0:
		return 0, "", fmt.Errorf("no leader among %q", modes)
	case len(modes) == 1:
		return lead, "", nil
	}
	victims := others(lead)
	switch t.fault.on {
	case leader:
		victims = []int{lead}
	case anyone:
		victims = append(victims, lead, lead) // twice, so that the leader is chosen as often as a follower
	}
	id = victims[t.random.IntN(len(victims))]
	return id, modes[id-1], nil
}

// holderAddrs returns the addresses at which the holder reaches the victim.
func (t *trial) holderAddrs(victim int) []string {
	if t.lab.distance != nil {
		return t.lab.distance.Addrs()
	}
	return t.addrs(victim)
}

func (t *trial) addrs(ids ...int) (addrs []string) {
	for _, id := range ids {
		addrs = append(addrs, t.lab.server(id).Addr())
	}
	return addrs
}
