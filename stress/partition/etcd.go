package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tierlock/tierlock/etcdlock"
	"github.com/tierlock/tierlock/internal/test/etcdserver"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/tier"
)

var etcd = &site{
	store: store.Etcd,
	faults: []fault{
		{name: "stopped", on: anyone, strike: stop},
		{name: "killed", on: leader, strike: kill},
		{name: "cut", on: anyone, strike: cut},
	},
	start: startEtcd,
	write: func(ctx context.Context, hold *tier.Hold, path string) {
		_, _ = etcdlock.Txn(ctx, hold, clientv3.OpPut(path, ""))
	},
}

// etcdTick is the tick that etcd has by default, in production. After ten ticks the other servers elect a leader.
const etcdTick = 100 * time.Millisecond

func startEtcd(ctx context.Context, l *lab) error {
	ensemble, err := etcdserver.StartEnsemble(ctx, members, etcdserver.Config{TickTime: etcdTick, NoSync: true})
	if err != nil {
		return err
	}
	l.ensemble = ensemble
	l.isolate = func(victim int) error {
		ensemble.Isolate(l.server(victim))
		return nil
	}
	l.heal = func() error {
		ensemble.Heal()
		return nil
	}
	return nil
}

// stop pauses a server, and resumes it later with its old state in memory.
func stop(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	if err := l.server(victim).Pause(); err != nil {
		return "", err
	}
	choice, err := l.away(ctx, victim, random)
	if err != nil {
		return "", err
	}
	return choice, l.server(victim).Resume()
}

// kill ends a server like kill -9, and starts it again.
func kill(ctx context.Context, l *lab, victim int, random *rand.Rand) (string, error) {
	l.server(victim).Kill()
	choice, err := l.away(ctx, victim, random)
	if err != nil {
		return "", err
	}
	return choice, l.server(victim).Restart(ctx)
}

// The method away waits until the victim may come back, for a random time. The time ends between the end of the holder's lease and a moment
// after the waiter has acquired the lock. If the victim came back earlier, the lock might not be lost. Other servers, if there are any,
// have elected a leader by then.
func (l *lab) away(ctx context.Context, victim int, random *rand.Rand) (string, error) {
	if len(l.ensemble.Members) == 1 {
		return pass(ctx, absence(random)), nil
	}
	from := clock.Now()
	if err := l.awaitLeader(ctx, victim); err != nil {
		return "", err
	}
	led := clock.Now().Sub(from)
	clock.Sleep(absence(random)-led, ctx.Done())
	return fmt.Sprintf("the others have a leader after %.3f s, back after %.3f s", led.Seconds(), clock.Now().Sub(from).Seconds()), nil
}

func absence(random *rand.Rand) time.Duration {
	return between(random, sessionTimeout*2/3, sessionTimeout*3/2)
}
