package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/relay"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// lone returns the site of a store with a single server.
func lone(s *store.Store) *site {
	return &site{
		store: s,
		faults: []fault{
			{name: "stopped", on: leader, strike: stop},
			{name: "killed", on: leader, strike: kill},
			{name: "mute", on: leader, strike: mute},
			{name: "halted", on: leader, halting: true, strike: halt},
		},
		start: func(ctx context.Context, l *lab) error {
			cluster, err := s.Start(ctx, store.Shape{Members: 1, Hasty: true})
			if err != nil {
				return err
			}
			l.ensemble = cluster.Ensemble
			l.distance, err = relay.New(cluster.Addrs(), 0)
			l.heal = func() error { l.distance.Heal(); return nil }
			return err
		},
	}
}

// mute blocks everything that is sent between the holder and the server.
func mute(ctx context.Context, l *lab, _ int, random *rand.Rand) (string, error) {
	l.distance.Mute()
	defer l.distance.Heal()
	return pass(ctx, absence(random)), nil
}

// halt pauses the holder for longer than the server waits for it. The pause begins right after the holder has checked its lock.
func halt(ctx context.Context, l *lab, _ int, random *rand.Rand) (string, error) {
	clock.Sleep(20*time.Millisecond, ctx.Done())
	holder := l.holder.Cmd.Process
	if err := child.Pause(holder); err != nil {
		return "", err
	}
	return pass(ctx, between(random, sessionTimeout*5/4, sessionTimeout*2)), child.Resume(holder)
}

func pass(ctx context.Context, long time.Duration) string {
	from := clock.Now()
	clock.Sleep(long, ctx.Done())
	return fmt.Sprintf("back after %.3f s", clock.Now().Sub(from).Seconds())
}
