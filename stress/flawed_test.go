package main

import (
	"context"
	"testing"

	"github.com/tierlock/tierlock/stress/internal/rule"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/store/storetest"
)

// flawed is tier's reader/writer lock, but sections of one weight wait for nobody.
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

// dialTooMany is tier's semaphore with one permit more than it should have.
func dialTooMany(ctx context.Context, o store.Options) (store.Locker, error) {
	o.Permits++
	return store.ZooKeeper.Locks["semaphore"].Dial(ctx, o)
}

func addFlawed() {
	store.ZooKeeper.Locks["too-many"] = store.Kind{Dial: dialTooMany, Sort: store.Semaphore}
	store.ZooKeeper.Locks["rash-readers"] = store.Kind{Dial: dialFlawed(1), Sort: store.ReadersWriter}
	store.ZooKeeper.Locks["rash-writers"] = store.Kind{Dial: dialFlawed(rule.Everybody), Sort: store.ReadersWriter}
}

func TestReaderBesideAWriterFails(t *testing.T) {
	for _, lock := range []string{"rash-readers", "rash-writers"} {
		r := runJSON(t, exitViolation, "-zk", servers(t)+"/"+lock, "-lock", lock, "-reads", "0.5",
			"-procs", "2", "-goroutines", "3", "-cs", "1ms", "-think", "1ms", "-duration", "1s")
		if r.Overlaps == 0 || r.TornReads == 0 {
			t.Errorf("%s: got %d overlaps, %d torn reads", lock, r.Overlaps, r.TornReads)
		}
	}
}

func TestReaderBesideAWriterFailsUnderChaos(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"rash-readers", "rash-writers"} {
		r := runJSON(t, exitViolation, "-chaos", "-lock", lock, "-reads", "0.5", "-duration", "1s", "-procs", "2")
		if r.Overlaps == 0 || r.Chaos.History != "Illegal" {
			t.Errorf("%s: got %d overlaps, history %s", lock, r.Overlaps, r.Chaos.History)
		}
	}
}

func TestOnePermitTooManyFails(t *testing.T) {
	r := runJSON(t, exitViolation, "-zk", servers(t), "-lock", "too-many", "-permits", "3", "-weight", "2",
		"-procs", "2", "-goroutines", "3", "-cs", "1ms", "-duration", "1s")
	if r.Overlaps == 0 {
		t.Errorf("got %+v", r)
	}
}

func TestOnePermitTooManyFailsUnderChaos(t *testing.T) {
	t.Parallel()
	r := runJSON(t, exitViolation, "-chaos", "-lock", "too-many", "-paths", "1", "-duration", "1s", "-procs", "2")
	if r.Overlaps == 0 || r.Chaos.History != "Illegal" {
		t.Errorf("got %d overlaps, history %s", r.Overlaps, r.Chaos.History)
	}
}
