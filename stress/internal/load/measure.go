package load

import (
	"context"
	"os"
	"time"

	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
	"github.com/tierlock/tierlock/stress/internal/relay"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// leakPatience limits how long a run waits for deletions that are under way after the last release. A process repeats a deletion that
// was not answered. After faults on a busy machine, several attempts may be necessary.
const leakPatience = 10 * time.Second

// Run measures a lock. If a baseline is configured, Run measures the baseline first. If ctx ends, the measurement ends early, and Run
// judges the data that was collected by then.
func Run(ctx context.Context, cfg Config) (*report.Result, error) {
	var baseline *report.Result
	if cfg.Baseline != "" {
		peer := cfg
		peer.Lock = cfg.Baseline
		var err error
		if baseline, err = Measure(ctx, peer); err != nil {
			return nil, err
		}
	}
	calm := Quiet()
	before, err := calibrate(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if before.Verdict == "FAIL" || before.Verdict == "PASS" && ctx.Err() != nil { // there is nothing more to judge
		before.Environment = cfg.Environment()
		return before, nil
	}
	result, err := Measure(ctx, cfg)
	if err != nil {
		return nil, err
	}
	judge.BoundAbsence(result, cfg.HandOff, before.HandOver, calm && Quiet())
	if baseline != nil {
		result.Compare(baseline)
	}
	result.Environment = cfg.Environment()
	return result, nil
}

// calibrated is how long the measurement of transfers before a run lasts.
const calibrated = time.Second

// The function calibrate measures how long a transfer takes: for a moment, the same processes pass the lock on at each release. If the lock
// promises no bound that depends on that time, calibrate measures nothing and returns an empty result.
func calibrate(ctx context.Context, cfg Config) (*report.Result, error) {
	if result := cfg.Result(); !judge.Promises(result) {
		return result, nil
	}
	cfg.HandOff, cfg.Duration, cfg.Section = new(time.Duration), min(calibrated, cfg.Duration), min(cfg.Section, time.Millisecond)
	return Measure(ctx, cfg)
}

// Measure runs the workers of one lock and judges the result, except for the bound on absences.
func Measure(ctx context.Context, cfg Config) (*report.Result, error) {
	seen, err := cfg.Store.Observe(ctx, cfg.Place())
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	dir, err := os.MkdirTemp("", "tierlock-stress-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	registers, err := evidence.NewRegisters(dir, cfg.Paths, cfg.Rule(), cfg.judging())
	if err != nil {
		return nil, err
	}

	theirs := cfg
	if cfg.RTT > 0 { // with an RTT of 0, nothing is put between the workers and the servers
		distance, err := relay.New(cfg.Servers, cfg.RTT/2)
		if err != nil {
			return nil, err
		}
		defer distance.Close()
		theirs.Servers = distance.Addrs()
	}

	// The end of this context kills all workers, whatever state they are in.
	slack := dialTimeout + cfg.Section + DrainTime + leakPatience + 10*time.Second
	life, kill := context.WithTimeout(context.Background(), cfg.Duration+slack)
	defer kill()
	workers, err := startChildren(life, theirs, seen.Paths(), dir)
	if err != nil {
		return nil, err
	}
	defer workers.Dismiss()
	return workers.perform(ctx, cfg, seen, registers)
}

// The method perform makes one run. Its workers have just been started.
func (c Children) perform(ctx context.Context, cfg Config, seen store.Observer, registers []*evidence.Register) (*report.Result, error) {
	c.await(func(e *Child) <-chan struct{} { return e.ready })
	before, known := seen.Traffic()
	c.Go()
	stop := context.AfterFunc(ctx, func() { c.tell("stop") })
	defer stop()
	c.awaitTallies()
	after, stillKnown := seen.Traffic()
	leaked, err := store.Leaked(context.WithoutCancel(ctx), seen, leakPatience)
	if err != nil {
		return nil, err
	}
	c.Dismiss()

	counted := make([]int64, cfg.Paths)
	for i, r := range registers {
		counted[i] = r.Counted()
	}
	result := cfg.Result()
	result.LeakedNodes = leaked
	judge.Summarize(result, cfg.Rule(), c.Tallies(), counted)
	if n := float64(result.Acquisitions + result.Late); known && stillKnown && n > 0 {
		packets, writes := float64(after.Packets-before.Packets+result.Exchanged)/n, float64(after.Writes-before.Writes)/n
		result.Packets, result.Writes = &packets, &writes
	}
	return result, nil
}
