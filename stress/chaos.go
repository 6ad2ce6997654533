package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/zkserver"
)

// recovery is what the lock may take to go on after the last fault, on top of the
// session timeout: connecting again, electing a leader, a busy machine. In the midst of
// faults it is a bit more.
const (
	recovery      = 3 * time.Second
	recoveryAmong = 5 * time.Second
)

// torment runs the workers of one lock amid faults, then lets them recover, and judges.
// A seed decides on all faults, though not on what they hit.
func torment(ctx context.Context, cfg Config, cluster *zkserver.Ensemble, stderr io.Writer) (*Result, error) {
	// At least 13 ticks, 2·(syncLimit+1.5) as the lease wants it: see the documentation
	// of zklock.
	random := rand.New(rand.NewPCG(cfg.Seed, 0))
	cfg.SessionTimeout = time.Duration(13+random.IntN(3)) * chaosTick
	seen, err := observe(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	dir, err := os.MkdirTemp("", "tierlock-stress-")
	if err != nil {
		return nil, err
	}
	result, err := tormentIn(ctx, cfg, cluster, seen, dir, random, stderr)
	if err == nil && result.Verdict != "PASS" {
		fmt.Fprintln(stderr, "stress: what the workers saw is kept in", dir)
		return result, nil
	}
	return result, errors.Join(err, os.RemoveAll(dir))
}

func tormentIn(
	ctx context.Context, cfg Config, cluster *zkserver.Ensemble, seen *observer, dir string, random *rand.Rand, stderr io.Writer,
) (*Result, error) {
	registers := &fence{cells: make([]cell, cfg.Paths)}
	stop, err := registers.serve(dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	calm := cfg.SessionTimeout + recovery
	// No worker outlives this, whatever happens to it. Healing the last fault can take
	// the start of a server.
	life, kill := context.WithTimeout(context.Background(), cfg.Duration+calm+drainTime+2*time.Minute)
	defer kill()
	t := task{Config: cfg, LockPaths: seen.paths, Dir: dir}
	t.Duration = cfg.Duration + calm + time.Minute // the workers are told when to stop
	fleet, err := newFleet(life, t, rand.New(rand.NewPCG(cfg.Seed, 1)))
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	fmt.Fprintf(stderr, "stress: chaos with seed %d, session timeout %v\n", cfg.Seed, cfg.SessionTimeout)

	e := &evidence{cfg: cfg, begin: now()}
	d := &diary{stderr: stderr, begin: e.begin, counts: map[string]int64{}}
	rage(ctx, cfg, d, fleet, registers, cluster, random)
	e.healed = now()
	sleep(ctx, nil, calm)
	e.end = now()
	e.interrupted = ctx.Err() != nil

	workers := fleet.children()
	workers.tell("stop")
	workers.await(func(c *child) <-chan struct{} { return c.reported })
	if err := seen.renew(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	if e.leaked, err = seen.leaked(context.WithoutCancel(ctx), calm); err != nil {
		return nil, err
	}
	workers.dismiss()
	e.reports = workers.reports()
	for _, s := range fleet.slots {
		e.deaths += int64(s.deaths)
	}
	e.diary, e.fence = d, registers.total()
	if e.holds, err = readJournals(dir); err != nil {
		return nil, err
	}
	result := e.judge()
	result.Environment = surroundings(cfg)
	return result, nil
}

// rage lets the faults loose for the duration of the run, or until ctx ends, and
// returns when all are healed.
func rage(
	ctx context.Context, cfg Config, d *diary, f *fleet, registers *fence, cluster *zkserver.Ensemble, random *rand.Rand,
) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Duration)
	defer cancel()
	var both sync.WaitGroup
	workers := &nemesis{rand.New(rand.NewPCG(cfg.Seed, 2)), cfg.SessionTimeout, d}
	servers := &nemesis{random, cfg.SessionTimeout, d}
	both.Go(func() { workers.rage(ctx, workers.workerFaults(f, registers), 0.5) })
	both.Go(func() { servers.rage(ctx, servers.serverFaults(cluster), 2) })
	both.Wait()
}
