package main

import (
	"context"
	"io"
	"os"
	"time"
)

// measure runs the workers of one lock and judges it.
func measure(ctx context.Context, cfg Config, stderr io.Writer) (*Result, error) {
	seen, err := observe(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	quorumWrite := seen.quorumWrite(ctx, cfg.Section)
	dir, err := os.MkdirTemp("", "tierlock-stress-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	registers, err := newRegisters(dir, cfg.Paths, cfg.judging())
	if err != nil {
		return nil, err
	}

	theirs := cfg
	if cfg.RTT > 0 { // without, nothing is to be in the way
		distance, err := newRelay(cfg.Servers, cfg.RTT/2)
		if err != nil {
			return nil, err
		}
		defer distance.Close()
		theirs.Servers = distance.addrs()
	}

	// No worker outlives this, whatever happens to it.
	slack := dialTimeout + cfg.Section + drainTime + leakPatience + 10*time.Second
	life, kill := context.WithTimeout(context.Background(), cfg.Duration+slack)
	defer kill()
	workers, err := startWorkers(life, theirs, seen.paths, dir)
	if err != nil {
		return nil, err
	}
	defer workers.dismiss()
	result, err := workers.perform(ctx, cfg, seen, registers, stderr)
	if err != nil {
		return nil, err
	}
	result.QuorumWrite = quorumWrite.Nanoseconds()
	return result, nil
}

// perform is one run of workers that have just been started.
func (c children) perform(
	ctx context.Context, cfg Config, seen *observer, registers []*register, stderr io.Writer,
) (*Result, error) {
	c.await(func(e *child) <-chan struct{} { return e.ready })
	before, known := seen.traffic()
	c.tell("go")
	stop := context.AfterFunc(ctx, func() { c.tell("stop") })
	defer stop()
	finish := showProgress(cfg, c, stderr)
	c.await(func(e *child) <-chan struct{} { return e.reported })
	finish()
	after, stillKnown := seen.traffic()
	leaked, err := seen.leaked(context.WithoutCancel(ctx), leakPatience)
	if err != nil {
		return nil, err
	}
	c.dismiss()

	counted := make([]int64, cfg.Paths)
	for i, r := range registers {
		counted[i] = r.counted()
	}
	result := &Result{
		Lock: cfg.Lock, Procs: cfg.Procs, Goroutines: cfg.Goroutines, Paths: cfg.Paths,
		Section: cfg.Section.Nanoseconds(), Think: cfg.Think.Nanoseconds(), RTT: cfg.RTT.Nanoseconds(), Seed: cfg.Seed, LeakedNodes: leaked,
	}
	result.summarize(c.reports(), counted)
	if n := float64(result.Acquisitions + result.Late); known && stillKnown && n > 0 {
		packets, writes := float64(after.packets-before.packets)/n, float64(after.writes-before.writes)/n
		result.Packets, result.Writes = &packets, &writes
	}
	if bound, ok := result.awayBound(cfg); ok {
		result.AwayBound = bound.Nanoseconds()
	}
	return result, nil
}
