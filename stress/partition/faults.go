package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
)

// fault is a way in which an ensemble falls apart.
type fault struct {
	name         string
	on           role // of the server that it befalls
	whileWriting bool // whether it takes a holder that writes all the time; otherwise every other one does
	halting      bool // whether it halts the holder itself
	// strike injects the fault into a server, and returns when the fault is over. strike describes the random choices.
	strike func(ctx context.Context, l *lab, victim int, random *rand.Rand) (choice string, err error)
}

// role is the role of a server when the fault begins.
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

// freeze stops the leader until the others have elected another one. The old leader then continues with all that it believed, at a random
// time until a moment after the waiter has acquired the lock.
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

// flap makes the link of a follower stall, work for a moment, and then fail permanently. In that moment the answer to a forwarded write
// may arrive, but not the list of the sessions that the follower has heard from.
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

// stutter stalls both directions, and then opens both.
func stutter(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	const up = 50 * time.Millisecond
	stall := between(random, tick/2, syncLimit*tick-tick/4) // too short to be given up by the leader
	choice := fmt.Sprintf("stall %.3f s, up %.3f s", stall.Seconds(), up.Seconds())
	return choice, l.steps(ctx, victim,
		step{drop: around, length: stall},
		step{drop: neither, length: up},
		step{drop: around})
}

// turn stalls what goes to the follower, and then opens only that direction.
func turn(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	stall := between(random, tick/2, syncLimit*tick-tick/4)
	choice := fmt.Sprintf("stall %.3f s of what goes to the follower, then of what comes from it", stall.Seconds())
	return choice, l.steps(ctx, victim,
		step{drop: towards, length: stall},
		step{drop: around}, // or the follower might still answer the leader
		step{drop: awayFrom})
}

// overtake stalls what goes to the follower. The follower is stopped while its kernel receives what the leader sends again. When the
// follower continues, it answers its clients, but the leader does not receive anything from it any more. A lease that counts from the
// newest answered write would be too long then.
func overtake(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	stall := between(random, 6*retransmission, 7*retransmission)
	up := 8*retransmission + tick/10 - stall // the probe that comes before can delay them
	choice := fmt.Sprintf("stall %.3f s of what goes to the follower, up %.3f s while it is stopped", stall.Seconds(), up.Seconds())
	return choice, l.steps(ctx, victim,
		step{drop: towards, length: stall},
		step{drop: neither, stopped: true, length: up},
		step{drop: awayFrom})
}

// step is a state of a server's links, and how long it lasts.
type step struct {
	drop    func(victim int) []way
	stopped bool
	length  time.Duration
}

// steps applies one step after the other; the last one stays.
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
