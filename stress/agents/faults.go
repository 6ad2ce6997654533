package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
)

// These are the kinds of faults.
const (
	killClient = "kill client"
	stopClient = "stop client"
	killAgent  = "kill agent"
	stopAgent  = "stop agent"
	cutAgent   = "cut agent"
)

// faults records the faults of a run.
type faults struct {
	stderr io.Writer
	begin  clock.Instant

	mu     sync.Mutex // guards the fields below
	found  judge.Faults
	broken []string // faults of the agents
	hits   []hit
}

// hit is the time of a fault of a client, or of an agent.
type hit struct {
	client, agent int // the process of the client, or the number of the agent; the other one is 0
	from, until   clock.Instant
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
	h := hit{from: from, until: until}
	switch kind {
	case killClient, stopClient:
		h.client = number
	default:
		h.agent = number
	}
	d.hits = append(d.hits, h)
	if err != nil {
		d.found.Unhealed = append(d.found.Unhealed, fmt.Errorf("%s: %w", kind, err))
	}
	fmt.Fprintf(d.stderr, "%7.3fs  %s %d, for %v\n", from.Sub(d.begin).Seconds(), kind, number, until.Sub(from).Round(time.Millisecond))
}

// touched reports whether a fault of the client or its agent can have ended a hold. The agent may need the given time to recover.
func (d *faults) touched(h evidence.Hold, recovery time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.hits, func(f hit) bool {
		return (f.client == h.Process || f.agent == h.Agent) && f.from < h.Over && f.until.Add(recovery) > h.Got
	})
}

func (d *faults) stopped(s judge.Stop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found.Stops = append(d.found.Stops, s)
}

// died records that a client was killed, and has ended.
func (d *faults) died(process int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.found.Died(process)
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
	brief := span{f.Lease / 2, 2 * f.Lease}
	both.Go(func() {
		f.repeat(ctx, clients, f.Lease, []func(){
			func() { f.killClient(ctx, clients, f.holder(ctx)) },
			func() { f.killClient(ctx, clients, f.anyClient(clients)) },
			func() { f.stopClient(ctx, clients, f.holder(ctx), brief) },
			func() { f.stopClient(ctx, clients, f.anyClient(clients), brief) },
		})
	})
	both.Go(func() {
		f.repeat(ctx, agents, f.Pause, []func(){
			func() { f.killAgent(ctx, agents, agents.IntN(f.Agents)) },
			func() { f.stopAgent(ctx, agents, agents.IntN(f.Agents), brief) },
			func() { f.cutAgent(ctx, agents, agents.IntN(f.Agents), span{f.Lease / 2, f.Session + f.Lease}) },
		})
	})
	both.Wait()
}

// repeat injects all faults again and again, each time in a random order, with a pause before each.
func (f *fleet) repeat(ctx context.Context, random *rand.Rand, longest time.Duration, all []func()) {
	for {
		for _, i := range random.Perm(len(all)) {
			if pause(ctx, random, span{longest / 20, longest}); ctx.Err() != nil {
				return
			}
			all[i]()
		}
	}
}

// The function pause waits for a random time. It returns earlier if ctx ends.
func pause(ctx context.Context, random *rand.Rand, s span) {
	clock.Sleep(s.low+time.Duration(random.Int64N(int64(s.high-s.low))), ctx.Done())
}

// span is a random time from low to high.
type span struct{ low, high time.Duration }

func (f *fleet) anyClient(random *rand.Rand) *client { return f.clients[random.IntN(len(f.clients))] }

// holder waits until a client is in its section, and returns it. If that takes too long, it returns the first client. It draws no random
// number, because the length of the wait does not depend on the seed.
func (f *fleet) holder(ctx context.Context) *client {
	ctx, cancel := context.WithTimeout(ctx, f.Session)
	defer cancel()
	for ; ctx.Err() == nil; clock.Sleep(time.Millisecond, ctx.Done()) {
		if c := f.inside(); c != nil {
			return c
		}
	}
	return f.clients[0]
}

// inside returns the client that is in its section, or nil.
func (f *fleet) inside() *client {
	for _, process := range f.fence.Inside() {
		if c := f.clients[evidence.SlotOf(int(process), len(f.clients))]; int64(c.task.Process) == process {
			return c
		}
	}
	return nil
}

func (f *fleet) killClient(ctx context.Context, random *rand.Rand, c *client) {
	from, process := clock.Now(), c.task.Process
	c.kill()
	f.faults.died(process)
	pause(ctx, random, span{0, f.Lease})
	f.faults.did(killClient, process, from, c.launch(f.life))
}

// The method stopClient stops a client for a time.
func (f *fleet) stopClient(ctx context.Context, random *rand.Rand, c *client, s span) {
	from := clock.Now()
	if !c.child.Pause() {
		return // the client has ended by itself, which the end of the run finds out
	}
	at := clock.Now()
	pause(ctx, random, s)
	f.faults.stopped(judge.Stop{Process: c.task.Process, From: at, Until: clock.Now()})
	c.child.Resume()
	f.faults.did(stopClient, c.task.Process, from, nil)
}

func (f *fleet) killAgent(ctx context.Context, random *rand.Rand, i int) {
	a, from := f.agents[i], clock.Now()
	if !a.kill() {
		f.faults.breaks(fmt.Sprintf("agent %d ended by itself: %v", i+1, a.exit))
	}
	pause(ctx, random, span{0, f.Lease})
	f.faults.did(killAgent, i+1, from, a.launch())
}

// The method stopAgent stops an agent for a time.
func (f *fleet) stopAgent(ctx context.Context, random *rand.Rand, i int, s span) {
	a, from := f.agents[i], clock.Now()
	select {
	case <-a.gone:
		return // it has ended by itself, which the end of the run finds out
	default:
	}
	err := child.Pause(a.cmd.Process)
	pause(ctx, random, s)
	if err == nil {
		err = child.Resume(a.cmd.Process)
	}
	f.faults.did(stopAgent, i+1, from, err)
}

// The method cutAgent cuts an agent off from the store for a time. Half of the time its connections end. Otherwise they stay open, nothing
// passes, and what was sent arrives at the end.
func (f *fleet) cutAgent(ctx context.Context, random *rand.Rand, i int, s span) {
	network, from := f.agents[i].network, clock.Now()
	if random.IntN(2) == 0 {
		network.Cut()
	} else {
		network.Mute()
	}
	pause(ctx, random, s)
	network.Heal()
	f.faults.did(cutAgent, i+1, from, nil)
}
