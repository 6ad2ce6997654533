package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/load"
)

// tried are the kinds of faults that a run with trials injects, each equally often.
var tried = []string{killClient, stopClient, killAgent, stopAgent, cutAgent}

// The method length returns how long the faults of a run may take.
func (p plan) length() time.Duration {
	if p.Trials > 0 {
		return time.Duration(p.Trials*len(p.Faults)) * (2*p.patience() + p.Session + 2*p.Lease)
	}
	return p.Duration
}

// attempts is how many times a trial is repeated, at most, because the client had left its section before the fault.
const attempts = 20

// try makes the trials, one after the other. Each hits a client in its section, or the agent of that client. That client then stays in its
// section until it notices that it has lost the lock, or until the fault ends. The languages of the clients take turns. A trial ends
// when the client, or a client of the agent, is in a section again.
func (f *fleet) try(ctx context.Context) {
	random := f.generator(3)
	for n := range f.Trials {
		for _, kind := range f.Faults {
			hit := false
			for i := 0; i < attempts && !hit; i++ {
				c := f.catch(ctx, f.Languages[n%len(f.Languages)])
				if c == nil {
					return
				}
				var victims []*client
				if victims, hit = f.trial(ctx, random, kind, c); !f.recovers(ctx, victims) {
					f.faults.breaks(fmt.Sprintf("trial %d of %s: the lock was not acquired there within %v", n+1, kind, f.patience()))
				}
			}
			if !hit && ctx.Err() == nil {
				f.faults.breaks(fmt.Sprintf("trial %d of %s: the client had left its section each time, in %d attempts", n+1, kind, attempts))
			}
		}
	}
}

// trial injects a fault while the client c is in its section, where it is stopped now. It returns the clients that the fault hits, and
// whether it has hit that section.
func (f *fleet) trial(ctx context.Context, random *rand.Rand, kind string, c *client) (victims []*client, hit bool) {
	switch kind {
	case killClient:
		f.killClient(ctx, random, c)
		return []*client{c}, true
	case stopClient:
		f.stopClient(ctx, random, c, span{f.Lease, 2 * f.Lease})
		return []*client{c}, true
	}
	agent, long := c.task.Agent-1, span{f.Session + f.Lease, f.Session + 2*f.Lease} // afterwards, another agent may have the lock
	leave, err := load.Linger(f.dir, c.task.Process)
	if err != nil {
		f.faults.breaks(err.Error())
	}
	inside := clock.Now()
	c.child.Resume()
	switch kind {
	case killAgent:
		f.killAgent(ctx, random, agent)
	case stopAgent:
		f.stopAgent(ctx, random, agent, long)
	case cutAgent:
		f.cutAgent(ctx, random, agent, long)
	}
	until := clock.Now()
	leave()
	return f.clients[agent*f.Clients : (agent+1)*f.Clients], f.hit(ctx, c.task.Process, inside, until)
}

// hit waits for the end of the hold that a client had at the instant inside. It reports whether the hold was lost, or its section lasted
// until the given instant.
func (f *fleet) hit(ctx context.Context, process int, inside, until clock.Instant) bool {
	limit, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	for ; limit.Err() == nil; clock.Sleep(50*time.Millisecond, limit.Done()) {
		holds, err := evidence.ReadJournals(f.dir)
		if err != nil {
			f.faults.breaks(err.Error())
			return true
		}
		if h := holdAt(holds, process, inside); h.Over != 0 {
			return h.Lost || h.Left >= until
		}
	}
	return true // the section has not ended
}

// holdAt returns the hold that a process had at an instant in its section.
func holdAt(holds []evidence.Hold, process int, inside clock.Instant) (last evidence.Hold) {
	for _, h := range holds {
		if h.Process == process && h.Got <= inside && h.Got >= last.Got {
			last = h
		}
	}
	return last
}

// catch waits until a client in the language is in its section, and returns it. The client is stopped then. If there is none, catch returns
// nil.
func (f *fleet) catch(ctx context.Context, language string) *client {
	limit, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	for ; limit.Err() == nil; clock.Sleep(time.Millisecond, limit.Done()) {
		c := f.inside()
		if c == nil || c.program.language != language || !c.child.Pause() {
			continue
		}
		if f.inside() == c {
			return c
		}
		c.child.Resume() // it has left the section before it stopped
	}
	if ctx.Err() == nil {
		f.faults.breaks(fmt.Sprintf("no client in %s was in a section for %v", language, f.patience()))
	}
	return nil
}

// recovers reports whether one of these clients begins a section from now on.
func (f *fleet) recovers(ctx context.Context, clients []*client) bool {
	begun := func() (n int64) {
		for _, c := range clients {
			n += f.fence.Begun(c.task.Process)
		}
		return n
	}
	limit, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	for before := begun(); begun() == before; clock.Sleep(time.Millisecond, limit.Done()) {
		if limit.Err() != nil {
			return ctx.Err() != nil
		}
	}
	return true
}
