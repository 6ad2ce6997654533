package verdict

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/relay"
	"github.com/tierlock/tierlock/stress/internal/store"
)

const (
	lease = 5 * time.Second
	// patience is how long an acquisition may take if nothing hinders it.
	patience = 4 * lease
	// obstinacy is how long an owner may believe in its lock while another process has it. After that the trial ends.
	obstinacy = 3 * lease
)

// outcome is the result of one trial.
type outcome struct {
	Subject string
	Fault   string
	Number  int    // the number of the trial in its cell, from 1; together with the seed it determines all random choices
	Choice  string // the random choices in words
	Server  string // the kind of the server and its version
	Version string // the version of the library
	Error   string // the reason if the trial shows nothing; then the fields below are not set

	verdict
	Never []string // the acquisitions that did not return although nothing hindered them
	Left  int64    // number of entries in the store after all have released
}

// trial has two processes: an owner behind a relay, and a waiter.
type trial struct {
	number        int
	random        *rand.Rand
	cluster       *store.Cluster
	relay         *relay.Relay
	owner, waiter *party
	woke          clock.Instant // when a paused owner was resumed
}

// try runs one trial on a server that no other trial uses.
func try(ctx context.Context, s Subject, f fault, number int, seed uint64) (o outcome) {
	for range 3 { // on a busy machine, the owner may fail before the fault
		o = outcome{Subject: s.Name, Fault: f.name, Number: number}
		err := conduct(ctx, s, f, seed, &o)
		if err == nil {
			break
		}
		o.Error = err.Error()
	}
	return o
}

func conduct(ctx context.Context, s Subject, f fault, seed uint64, o *outcome) (err error) {
	t := &trial{number: o.Number, random: rand.New(rand.NewPCG(seed, uint64(o.Number)))} //nolint:gosec // the same again
	if t.cluster, err = s.Store.Start(ctx, store.Shape{Members: 1, Hasty: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.cluster.Stop()) }()
	version, err := t.cluster.Members[0].Version()
	if err != nil {
		return err
	}
	o.Server = s.Store.Title + " " + version
	if t.relay, err = relay.New(t.cluster.Addrs(), 0); err != nil {
		return err
	}
	defer t.relay.Close()
	view, err := s.Store.Observe(ctx, store.Place{Servers: t.cluster.Addrs(), Lock: "verdict", Paths: 1})
	if err != nil {
		return err
	}
	defer view.Close()
	if t.owner, err = startParty(ctx, "owner", s, task{s.Name, t.relay.Addrs(), view.Paths()[0], lease}); err != nil {
		return err
	}
	defer t.owner.end() //nolint:errcheck // It is killed.
	o.Version = t.owner.began.Version
	if t.waiter, err = startParty(ctx, "waiter", s, task{s.Name, t.cluster.Addrs(), view.Paths()[0], lease}); err != nil {
		return err
	}
	defer t.waiter.end() //nolint:errcheck // likewise
	if err := t.run(ctx, f, o); err != nil {
		return err
	}
	t.owner.take()
	o.verdict = judge(append(t.owner.turns, t.waiter.turns...), t.woke, clock.Now())
	if err := view.Renew(ctx); err != nil {
		return err
	}
	o.Left, err = store.Leaked(ctx, view, lease/2)
	return err
}

// The method run injects the fault. Then it lets each process acquire the lock once.
func (t *trial) run(ctx context.Context, f fault, o *outcome) (err error) {
	asking := f.name == "answers" && t.number%3 == 1
	if !asking {
		t.owner.order(acquire)
		if err := t.owner.await(ctx, granted, patience); err != nil {
			return err
		}
		t.waiter.order(acquire)
		t.wait(ctx, lease/5, lease*4/5) // a random moment between two renewals of the owner
	}
	if o.Choice, err = f.strike(ctx, t); err != nil {
		return err
	}
	if asking {
		t.waiter.order(acquire)
	}
	// If the store has kept the lock for the owner, the owner may keep it. It is then ordered to release it.
	err = t.waiter.await(ctx, granted, 2*lease+lease/2)
	if errors.Is(err, errLate) {
		t.owner.order(release)
		err = t.waiter.await(ctx, granted, patience)
	}
	if err != nil {
		return o.never(err)
	}
	if t.owner.take(); t.owner.inside() {
		if err := t.owner.await(ctx, over, obstinacy); errors.Is(err, errLate) {
			t.owner.order(release)
		}
	}
	t.waiter.order(release)
	if err := t.waiter.awaitRelease(ctx); err != nil {
		return o.never(err)
	}
	if t.owner.turns != nil { // an owner that never had the lock tries again and again
		if err := t.owner.awaitRelease(ctx); err != nil {
			return o.never(err)
		}
		t.owner.order(acquire)
	}
	if err = t.owner.await(ctx, granted, patience); err != nil {
		return o.never(err)
	}
	t.owner.order(release)
	return o.never(t.owner.awaitRelease(ctx))
}

// outcome.never records an errLate, which says that an event did not come in time. It returns any other error, which ends the trial.
func (o *outcome) never(err error) error {
	if !errors.Is(err, errLate) {
		return err
	}
	o.Never = append(o.Never, err.Error())
	return nil
}
