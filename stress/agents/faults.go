package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
)

// faults records the faults of a run.
type faults struct {
	stderr io.Writer
	begin  clock.Instant

	mu     sync.Mutex // guards the fields below
	found  judge.Faults
	broken []string // faults of the agents
}

func newFaults(stderr io.Writer) *faults {
	return &faults{stderr: stderr, begin: clock.Now(), found: judge.Faults{Counts: map[string]int64{}}}
}

// did records a fault that began at from and was undone just now. If err is not nil, it could not be undone.
func (d *faults) did(kind string, number int, from clock.Instant, err error) {
	until := clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found.Counts[kind]++
	d.found.Disturbances = append(d.found.Disturbances, judge.Disturbance{Kind: kind, From: from, Until: until})
	if err != nil {
		d.found.Unhealed = append(d.found.Unhealed, fmt.Errorf("%s: %w", kind, err))
	}
	fmt.Fprintf(d.stderr, "%7.3fs  %s %d, for %v\n", from.Sub(d.begin).Seconds(), kind, number, until.Sub(from).Round(time.Millisecond))
}

func (d *faults) stopped(s judge.Stop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found.Stops = append(d.found.Stops, s)
}

func (d *faults) breaks(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = append(d.broken, text)
}

// rage injects faults until the duration of the run is over or ctx ends. It returns when all faults are undone. The seed determines the
// faults, but not which requests they hit.
func (f *fleet) rage(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, f.Duration)
	defer cancel()
	var both sync.WaitGroup
	clients, agents := f.generator(1), f.generator(2)
	both.Go(func() {
		f.repeat(ctx, clients, f.Lease, []func(){
			func() { f.killClient(ctx, clients, f.holder(ctx)) },
			func() { f.killClient(ctx, clients, f.anyClient(clients)) },
			func() { f.stopClient(ctx, clients, f.holder(ctx)) },
			func() { f.stopClient(ctx, clients, f.anyClient(clients)) },
		})
	})
	both.Go(func() {
		f.repeat(ctx, agents, f.Pause, []func(){
			func() { f.killAgent(ctx, agents) },
			func() { f.stopAgent(ctx, agents) },
		})
	})
	both.Wait()
}

// repeat injects all faults again and again, each time in a random order, with a pause before each.
func (f *fleet) repeat(ctx context.Context, random *rand.Rand, longest time.Duration, all []func()) {
	for {
		for _, i := range random.Perm(len(all)) {
			if pause(ctx, random, longest/20, longest); ctx.Err() != nil {
				return
			}
			all[i]()
		}
	}
}

// The function pause waits for a random time. It returns earlier if ctx ends.
func pause(ctx context.Context, random *rand.Rand, low, high time.Duration) {
	clock.Sleep(low+time.Duration(random.Int64N(int64(high-low))), ctx.Done())
}

func (f *fleet) anyClient(random *rand.Rand) *client { return f.clients[random.IntN(len(f.clients))] }

// holder waits until a client is in its section, and returns it. If that takes too long, it returns the first client. It draws no random
// number, because the length of the wait does not depend on the seed.
func (f *fleet) holder(ctx context.Context) *client {
	ctx, cancel := context.WithTimeout(ctx, f.Session)
	defer cancel()
	for ; ctx.Err() == nil; clock.Sleep(time.Millisecond, ctx.Done()) {
		for _, process := range f.fence.Inside() {
			if c := f.clients[evidence.SlotOf(int(process), len(f.clients))]; int64(c.task.Process) == process {
				return c
			}
		}
	}
	return f.clients[0]
}

func (f *fleet) killClient(ctx context.Context, random *rand.Rand, c *client) {
	from := clock.Now()
	c.kill()
	pause(ctx, random, 0, f.Lease)
	f.faults.did("kill client", c.task.Process, from, c.launch(f.life))
}

// The method stopClient stops a client for half a lease to two leases.
func (f *fleet) stopClient(ctx context.Context, random *rand.Rand, c *client) {
	from := clock.Now()
	if !c.child.Pause() {
		return // the client has ended by itself, which the end of the run finds out
	}
	at := clock.Now()
	pause(ctx, random, f.Lease/2, 2*f.Lease)
	f.faults.stopped(judge.Stop{Process: c.task.Process, From: at, Until: clock.Now()})
	c.child.Resume()
	f.faults.did("stop client", c.task.Process, from, nil)
}

func (f *fleet) killAgent(ctx context.Context, random *rand.Rand) {
	i := random.IntN(len(f.agents))
	a, from := f.agents[i], clock.Now()
	if !a.kill() {
		f.faults.breaks(fmt.Sprintf("agent %d ended by itself: %v", i+1, a.exit))
	}
	pause(ctx, random, 0, f.Lease)
	f.faults.did("kill agent", i+1, from, a.launch())
}

// The method stopAgent stops an agent for half a lease to two leases.
func (f *fleet) stopAgent(ctx context.Context, random *rand.Rand) {
	i := random.IntN(len(f.agents))
	a, from := f.agents[i], clock.Now()
	select {
	case <-a.gone:
		return // it has ended by itself, which the end of the run finds out
	default:
	}
	err := child.Pause(a.cmd.Process)
	pause(ctx, random, f.Lease/2, 2*f.Lease)
	if err == nil {
		err = child.Resume(a.cmd.Process)
	}
	f.faults.did("stop agent", i+1, from, err)
}
