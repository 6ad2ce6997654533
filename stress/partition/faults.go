package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// fault is something that goes wrong in an ensemble, in its network or in the holder.
type fault struct {
	name         string
	on           role // the role of the server that the fault hits
	whileWriting bool // in each trial the holder writes all the time; otherwise in half of the trials
	halting      bool // the fault pauses the holder itself
	// strike injects the fault into a server, and returns when the fault is over. It also returns a text that describes its random choices.
	strike func(ctx context.Context, l *lab, victim int, random *rand.Rand) (choice string, err error)
}

// role is the role that a server has when the fault begins.
type role int

const (
	follower role = iota
	leader
	anyone
)

// cut separates the victim from the other servers.
func cut(_ context.Context, l *lab, victim int, _ *rand.Rand) (string, error) {
	return "", l.isolate(victim)
}

// freeze pauses the leader until the other servers have elected a new one. It then resumes the old leader with its old state in memory.
// It does so at a random time, at the latest a moment after the waiter has acquired the lock.
func freeze(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	stopped := clock.Now()
	if err := l.server(victim).Pause(); err != nil {
		return "", err
	}
	if err := l.awaitLeader(ctx, victim); err != nil {
		return "", err
	}
	elected := clock.Now().Sub(stopped)
	clock.Sleep(between(random, 0, sessionTimeout+2*tick), ctx.Done())
	choice := fmt.Sprintf("another leader after %.3f s, continued after %.3f s", elected.Seconds(), clock.Now().Sub(stopped).Seconds())
	return choice, l.server(victim).Resume()
}

// flap makes the link of a follower stall, then work for a moment, and then fail for good. In that moment, the answer to a forwarded
// write may arrive. But the list of the sessions that the follower has heard from may not arrive.
func flap(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	switch random.IntN(4) {
	case 0:
		return stutter(ctx, l, victim, random)
	case 1:
		return turn(ctx, l, victim, random)
	default:
		return overtake(ctx, l, victim, random)
	}
}

// stutter stalls the link in both directions, and then lets both work for a moment.
func stutter(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	const up = 50 * time.Millisecond
	stall := between(random, tick/2, syncLimit*tick-tick/4) // the leader does not give the follower up yet
	choice := fmt.Sprintf("stall %.3f s, up %.3f s", stall.Seconds(), up.Seconds())
	return choice, l.steps(ctx, victim,
		step{drop: around, length: stall},
		step{drop: neither, length: up},
		step{drop: around})
}

// turn stalls only the messages to the follower. After that, it lets this direction work and drops the other one.
func turn(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	stall := between(random, tick/2, syncLimit*tick-tick/4)
	choice := fmt.Sprintf("stall %.3f s of what goes to the follower, then of what comes from it", stall.Seconds())
	return choice, l.steps(ctx, victim,
		step{drop: towards, length: stall},
		step{drop: around}, // otherwise the follower might still answer the leader
		step{drop: awayFrom})
}

// overtake stalls the messages to the follower. Then it pauses the follower, whose kernel receives what the leader sends again. After the
// pause, the follower answers its clients, but the leader receives nothing from it. A lease that counted from the newest answered write
// would then be too long.
func overtake(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	stall := between(random, 6*retransmission, 7*retransmission)
	up := 8*retransmission + tick/10 - stall // a probe is sent before and can delay the data
	choice := fmt.Sprintf("stall %.3f s of what goes to the follower, up %.3f s while it is stopped", stall.Seconds(), up.Seconds())
	return choice, l.steps(ctx, victim,
		step{drop: towards, length: stall},
		step{drop: neither, stopped: true, length: up},
		step{drop: awayFrom})
}

// step is a state of the links of a server, and how long the state lasts.
type step struct {
	drop    func(victim int) []way
	stopped bool
	length  time.Duration
}

// The method steps applies one step after the other. The state of the last step remains.
func (l *lab) steps(ctx context.Context, victim int, steps ...step) error {
	server := l.server(victim)
	for _, s := range steps {
		if s.stopped {
			if err := server.Pause(); err != nil {
				return err
			}
		}
		if err := l.network.set(s.drop(victim)...); err != nil {
			return err
		}
		if !s.stopped {
			if err := server.Resume(); err != nil {
				return err
			}
		}
		clock.Sleep(s.length, ctx.Done())
	}
	return nil
}

func neither(int) []way { return nil }

func around(victim int) []way { return append(towards(victim), awayFrom(victim)...) }

func towards(victim int) (ways []way) {
	for _, other := range others(victim) {
		ways = append(ways, way{other, victim})
	}
	return ways
}

func awayFrom(victim int) (ways []way) {
	for _, other := range others(victim) {
		ways = append(ways, way{victim, other})
	}
	return ways
}

func others(victim int) (ids []int) {
	for id := 1; id <= members; id++ {
		if id != victim {
			ids = append(ids, id)
		}
	}
	return ids
}

func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}
