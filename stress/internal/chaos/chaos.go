// Package chaos kills, stops and cuts off workers and servers while the workers hammer a
// lock, and has what they saw judged.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// recovery is what the lock may take to go on after the last fault, on top of the
// session timeout: connecting again, electing a leader, a busy machine.
const recovery = 3 * time.Second

// Run runs the workers of one lock on a cluster amid faults, then lets them recover, and
// judges. A seed decides on all faults, though not on what they hit. The end of ctx ends
// the faults; what was done by then is judged.
func Run(ctx context.Context, cfg load.Config, cluster *child.Ensemble, stderr io.Writer) (*report.Result, error) {
	random := rand.New(rand.NewPCG(cfg.Seed, 0))
	cfg.SessionTimeout = cfg.Store.HastyTimeout(random)
	seen, err := cfg.Store.Observe(ctx, cfg.Place())
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	dir, err := os.MkdirTemp("", "tierlock-stress-")
	if err != nil {
		return nil, err
	}
	result, err := torment(ctx, cfg, cluster, seen, dir, random, stderr)
	if err == nil && result.Verdict != "PASS" {
		fmt.Fprintln(stderr, "stress: what the workers saw is kept in", dir)
		return result, nil
	}
	return result, errors.Join(err, os.RemoveAll(dir))
}

func torment(
	ctx context.Context, cfg load.Config, cluster *child.Ensemble, seen store.Observer, dir string, random *rand.Rand, stderr io.Writer,
) (*report.Result, error) {
	fence := evidence.NewFence(cfg.Paths)
	stop, err := fence.Serve(dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	calm := cfg.SessionTimeout + recovery
	// No worker outlives this, whatever happens to it. Healing the last fault can take
	// the start of a server.
	life, kill := context.WithTimeout(context.Background(), cfg.Duration+calm+load.DrainTime+2*time.Minute)
	defer kill()
	t := load.Task{Config: cfg, LockPaths: seen.Paths(), Dir: dir}
	t.Duration = cfg.Duration + calm + time.Minute // the workers are told when to stop
	fleet, err := newFleet(life, t, rand.New(rand.NewPCG(cfg.Seed, 1)))
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	fmt.Fprintf(stderr, "stress: chaos with seed %d, session timeout %v\n", cfg.Seed, cfg.SessionTimeout)

	c := &judge.Case{SessionTimeout: cfg.SessionTimeout, Lease: cfg.Store.Lease(cfg.SessionTimeout), Begin: clock.Now()}
	d := &diary{stderr: stderr, begin: c.Begin, faults: judge.Faults{Counts: map[string]int64{}}}
	rage(ctx, cfg, d, fleet, fence, cluster, random)
	c.Healed = clock.Now()
	clock.Sleep(calm, ctx.Done())
	c.End = clock.Now()
	c.Interrupted = ctx.Err() != nil

	workers := fleet.children()
	workers.Stop()
	if err := seen.Renew(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	if c.Leaked, err = store.Leaked(context.WithoutCancel(ctx), seen, calm); err != nil {
		return nil, err
	}
	workers.Dismiss()
	c.Tallies = workers.Tallies()
	for _, s := range fleet.slots {
		c.Deaths += int64(s.deaths)
	}
	c.Faults, c.Fence = d.faults, fence.Total()
	if c.Holds, err = evidence.ReadJournals(dir); err != nil {
		return nil, err
	}
	result := cfg.Result()
	c.Judge(result)
	result.Environment = cfg.Environment()
	return result, nil
}

// rage lets the faults loose for the duration of the run, or until ctx ends, and
// returns when all are healed.
func rage(
	ctx context.Context, cfg load.Config, d *diary, f *fleet, fence *evidence.Fence, cluster *child.Ensemble, random *rand.Rand,
) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Duration)
	defer cancel()
	var both sync.WaitGroup
	workers := &nemesis{rand.New(rand.NewPCG(cfg.Seed, 2)), cfg.SessionTimeout, d}
	servers := &nemesis{random, cfg.SessionTimeout, d}
	both.Go(func() { workers.rage(ctx, workers.workerFaults(f, fence), 0.5) })
	both.Go(func() { servers.rage(ctx, servers.serverFaults(cluster), 2) })
	both.Wait()
}
