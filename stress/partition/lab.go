package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/relay"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// patience limits each wait for something that has to happen eventually. It is long, for busy machines.
const patience = time.Minute

// lab is an ensemble together with the network between its servers.
type lab struct {
	site     *site
	plan     plan
	ensemble *child.Ensemble
	isolate  func(victim int) error // cuts a server off from the other servers
	heal     func() error           // restores all connections between the servers
	network  *network               // nil except for ZooKeeper
	distance *relay.Relay           // between the holders and a server that is the only one; otherwise nil
	holder   *locker                // the holder in the present trial
}

// labMain is the main function of a lab process. It reads a plan and reports the outcome of each trial.
func labMain() int {
	var p plan
	ctx, err := begin(&p)
	if err != nil {
		return exitUsage
	}
	err = runPlan(ctx, p)
	if err == nil {
		return exitPass
	}
	if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "partition:", err)
	}
	if missing := child.Missing(""); errors.Is(err, errUnavailable) || errors.Is(err, store.ErrNoServer) || errors.As(err, &missing) {
		return exitUnavailable
	}
	return exitBreach
}

// begin reads the task of this process. It returns a context that ends when the input of the process ends.
func begin(task any) (context.Context, error) {
	orders, err := twin.Begin(task)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		orders.Scan() // returns at the end of the input
		cancel()
	}()
	return ctx, nil
}

func runPlan(ctx context.Context, p plan) (err error) {
	l := &lab{site: siteOf(p.Store), plan: p}
	if err := l.site.start(ctx, l); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.ensemble.Stop()) }()
	for n := p.Share; n < p.Trials*len(p.Faults); n += p.Of {
		o, err := l.try(ctx, p.Faults[n/p.Trials], n%p.Trials+1)
		if err := errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		_ = twin.Say(o)
	}
	return nil
}

func (l *lab) server(id int) *child.Server { return l.ensemble.Members[id-1] }

// The method settle undoes all faults and waits until every server serves requests.
func (l *lab) settle(ctx context.Context) error {
	if err := l.heal(); err != nil {
		return err
	}
	for _, s := range l.ensemble.Members {
		if err := s.Resume(); err != nil {
			return err
		}
	}
	want := append(slices.Repeat([]string{"follower"}, len(l.ensemble.Members)-1), "leader")
	return eventually(ctx, "all servers serve", func() bool {
		modes := l.modes(l.everybody()...)
		slices.Sort(modes)
		return slices.Equal(modes, want)
	})
}

func (l *lab) everybody() (ids []int) {
	for i := range l.ensemble.Members {
		ids = append(ids, i+1)
	}
	return ids
}

// The method besides returns the servers that the waiter can use while a fault hits the victim: all other servers, or the victim if it is
// the only one.
func (l *lab) besides(victim int) []int {
	if len(l.ensemble.Members) == 1 {
		return []int{victim}
	}
	return others(victim)
}

// awaitLeader waits until a server other than except is the leader.
func (l *lab) awaitLeader(ctx context.Context, except int) error {
	return eventually(ctx, "the others have a leader", func() bool {
		return slices.Contains(l.modes(others(except)...), "leader")
	})
}

// modes returns the mode that each server reports. The mode of a server that does not answer is "".
func (l *lab) modes(ids ...int) []string {
	modes := make([]string, len(ids))
	for i, id := range ids {
		modes[i], _ = l.server(id).Mode()
	}
	return modes
}

// eventually calls holds every few milliseconds until it returns true.
func eventually(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := child.Until(ctx, holds); err != nil {
		return fmt.Errorf("never: %s: %w", what, err)
	}
	return nil
}
