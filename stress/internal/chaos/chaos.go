// Package chaos kills, pauses and cuts off workers and servers while the workers contend for a lock. After that it checks what the
// workers have recorded.
package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/trace"
)

// recovery is how long the lock may need to be acquired again after the last fault, in addition to the session timeout.
const recovery = 3 * time.Second

// Run runs the workers of one lock on a cluster and injects faults. Then it lets the workers recover, and checks the result. The seed
// determines all faults, but not which requests they hit. If ctx ends, there are no more faults, and Run checks the records so far. If the
// history is illegal, Run draws it in the file drawing. If drawing is "", it draws in a file next to the workers' records.
func Run(ctx context.Context, cfg load.Config, cluster *store.Cluster, drawing string, stderr io.Writer) (*report.Result, error) {
	random := rand.New(rand.NewPCG(cfg.Seed, 0))
	cfg.SessionTimeout = cfg.Store.HastyTimeout(random)
	seen, err := cfg.Store.Observe(ctx, cfg.Place())
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	dir, err := cfg.Trace, error(nil)
	if dir == "" {
		dir, err = os.MkdirTemp("", "tierlock-stress-")
	}
	if err != nil {
		return nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	if cfg.Trace != "" {
		remove = func() error { return nil }
	}
	c, err := (&torment{cfg, cluster, seen, dir, random, stderr}).run(ctx)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	result := cfg.Result()
	c.Judge(result)
	result.Environment = cfg.Environment()
	if result.Verdict == "PASS" {
		return result, remove()
	}
	if drawing == "" {
		drawing = filepath.Join(dir, "history.html")
	}
	if err := draw(c, result.Chaos, drawing); err != nil {
		fmt.Fprintln(stderr, "stress: the history is not drawn:", err)
	}
	fmt.Fprintln(stderr, "stress: what the workers saw is kept in", dir)
	return result, nil
}

// The function draw draws the illegal part of the history. If the history is legal, draw does nothing.
func draw(c *judge.Case, found *report.Chaos, name string) error {
	if !found.Illegal() {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Draw(file), file.Close()); err != nil {
		return err
	}
	found.Drawing = name
	return nil
}

// torment is a run with faults.
type torment struct {
	cfg     load.Config
	cluster *store.Cluster
	seen    store.Observer
	dir     string // the directory for the files of the workers
	random  *rand.Rand
	stderr  io.Writer
}

// The method run makes the run and collects the evidence. It does not check the evidence.
func (t *torment) run(ctx context.Context) (*judge.Case, error) {
	cfg := t.cfg
	fence := evidence.NewFence(cfg.Paths)
	stop, err := fence.Serve(t.dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	calm := cfg.SessionTimeout + recovery
	if cfg.Store.GracePeriod {
		calm += cfg.SessionTimeout
	}
	// The end of this context kills all workers, whatever state they are in. The two minutes are for healing the last fault, which can take
	// as long as the start of a server.
	life, kill := context.WithTimeout(context.Background(), cfg.Duration+calm+load.DrainTime+2*time.Minute)
	defer kill()
	task := load.Task{Config: cfg, LockPaths: t.seen.Paths(), Dir: t.dir}
	task.Duration = cfg.Duration + calm + time.Minute // later than the order to stop that the workers get
	fleet, err := newFleet(life, task, rand.New(rand.NewPCG(cfg.Seed, 1)))
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	fmt.Fprintf(t.stderr, "stress: chaos with seed %d, session timeout %v\n", cfg.Seed, cfg.SessionTimeout)

	c := &judge.Case{
		Rule: cfg.Rule(), SessionTimeout: cfg.SessionTimeout, Lease: store.Lease(cfg.SessionTimeout), Begin: clock.Now(),
	}
	d := &faultLog{stderr: t.stderr, begin: c.Begin, faults: judge.Faults{Counts: map[string]int64{}}}
	t.rage(ctx, d, fleet, fence)
	c.Healed = clock.Now()
	if err := t.settle(ctx, c, calm); err != nil {
		return nil, err
	}
	c.End = clock.Now()
	c.Interrupted = ctx.Err() != nil

	workers := fleet.children()
	workers.Stop()
	if err := t.seen.Renew(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	if c.Leaked, err = store.Leaked(context.WithoutCancel(ctx), t.seen, calm); err != nil {
		return nil, err
	}
	workers.Dismiss()
	c.Tallies = workers.Tallies()
	for _, s := range fleet.slots {
		c.Deaths += int64(s.deaths)
	}
	fence.Died(d.faults.Deaths)
	c.Faults, c.Fence = d.faults, fence.Total()
	if c.Holds, err = evidence.ReadJournals(t.dir); err != nil || !cfg.Traced() {
		return c, err
	}
	events, err := trace.Read(t.dir)
	if err == nil {
		events = append(events, gotten(c.Holds, task.LockPaths)...)
		c.Events = int64(len(events))
		c.Undecided, c.Impossible = trace.Check(events, cfg.Store.Model)
	}
	return c, err
}

// The method settle lets the workers run for the time calm after the last fault. On a busy machine, it waits longer, until each path was
// acquired again. It never waits longer than the faults explain: see the stalls in [judge.Case].
func (t *torment) settle(ctx context.Context, c *judge.Case, calm time.Duration) error {
	limit := time.Now().Add(calm + 3*judge.Recovery)
	for clock.Sleep(calm, ctx.Done()); ctx.Err() == nil && time.Now().Before(limit); clock.Sleep(time.Second, ctx.Done()) {
		holds, err := evidence.ReadJournals(t.dir)
		if c.Holds = holds; err != nil || c.Resumed(t.cfg.Paths) {
			return err
		}
	}
	return nil
}

// The function gotten returns two events for each hold: when the lock was acquired, and when it was last known to be valid. The checker of
// the trace has to explain both.
func gotten(holds []evidence.Hold, paths []string) (events []trace.Event) {
	for _, h := range holds {
		hold := &trace.Hold{Path: paths[h.Path], Token: h.Token}
		got := trace.Event{At: h.Got, Process: strconv.Itoa(h.Process), Kind: trace.Got, Hold: hold}
		valid := got
		valid.At, valid.Kind = h.Valid, trace.Valid
		if h.Token != 0 {
			events = append(events, got)
		}
		if h.Token != 0 && h.Valid != 0 {
			events = append(events, valid)
		}
	}
	return events
}

// The method rage injects faults until the duration of the run is over or ctx ends. It returns when all faults are healed.
func (t *torment) rage(ctx context.Context, d *faultLog, f *fleet, fence *evidence.Fence) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Duration)
	defer cancel()
	var both sync.WaitGroup
	workers := &nemesis{rand.New(rand.NewPCG(t.cfg.Seed, 2)), t.cfg.SessionTimeout, d}
	servers := &nemesis{t.random, t.cfg.SessionTimeout, d}
	both.Go(func() { workers.rage(ctx, workers.workerFaults(f, fence), 0.5) })
	both.Go(func() { servers.rage(ctx, servers.serverFaults(t.cluster), 2) })
	both.Wait()
}
