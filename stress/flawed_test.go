package main

import (
	"context"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/oracle"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/store/storetest"
)

// flawed is tier's reader/writer lock with a defect: sections with one particular weight do not exclude one another.
type flawed struct {
	store.Locker
	weight int64
}

func dialFlawed(weight int64) store.Dial {
	return func(ctx context.Context, o store.Options) (store.Locker, error) {
		inner, err := store.ZooKeeper.Locks["rw"].Dial(ctx, o)
		return flawed{inner, weight}, err
	}
}

func (l flawed) Contender(path string) (store.Contender, error) {
	acquire, err := l.Locker.Contender(path)
	return func(ctx context.Context, weight int64) (store.Hold, error) {
		if weight == l.weight {
			return storetest.Hold{}, nil
		}
		return acquire(ctx, weight)
	}, err
}

// dialTooMany dials tier's semaphore with one permit more than the judge expects.
func dialTooMany(ctx context.Context, o store.Options) (store.Locker, error) {
	o.Permits++
	return store.ZooKeeper.Locks["semaphore"].Dial(ctx, o)
}

func addFlawed() {
	store.ZooKeeper.Locks["too-many"] = store.Kind{Dial: dialTooMany, Sort: store.Semaphore}
	store.ZooKeeper.Locks["rash-readers"] = store.Kind{Dial: dialFlawed(1), Sort: store.ReadersWriter}
	store.ZooKeeper.Locks["rash-writers"] = store.Kind{Dial: dialFlawed(oracle.Everybody), Sort: store.ReadersWriter}
}

// flawedLocks has each flawed lock, with the flags for its run.
var flawedLocks = map[string][]string{
	"rash-readers": {"-reads", "0.5"}, "rash-writers": {"-reads", "0.5"}, "too-many": {"-permits", "3", "-weight", "2"},
}

func TestWhoIsLetInBesideOthersFailsTheRun(t *testing.T) {
	for lock, flags := range flawedLocks {
		r := runJSON(t, exitViolation, append(flags, "-zk", servers(t)+"/"+lock, "-lock", lock,
			"-procs", "2", "-goroutines", "3", "-cs", "20ms", "-duration", "1s")...) // with these times, a section is nearly always in progress
		need.That(t, lock+": no overlaps", r.Overlaps != 0)
		need.Equal(t, lock+": whether there are torn reads", r.TornReads > 0, lock != "too-many")
	}
}

func TestWhoIsLetInBesideOthersFailsUnderChaos(t *testing.T) {
	t.Parallel()
	for lock, flags := range flawedLocks {
		r := runJSON(t, exitViolation, append(flags, "-chaos", "-lock", lock, "-paths", "1",
			"-cs", "200ms", "-duration", "1s", "-procs", "2")...) // a section lasts longer than a hand-over on a busy machine
		need.AtLeast(t, lock+": overlaps", r.Overlaps, 1)
		need.Equal(t, lock+": the history", r.Chaos.History, "Illegal")
	}
}
