package tier_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func write(ctx context.Context, hold *tier.Hold) error {
	_, err := tierlock.Multi(ctx, hold, &zk.CreateRequest{Path: "/written", Acl: zk.WorldACL(zk.PermAll)})
	return err
}

// An interruption is a context that lets something happen in the middle of a call: when
// it is first asked whether it has ended.
type interruption struct {
	context.Context
	happen func()
}

func (i interruption) Err() error {
	i.happen()
	return i.Context.Err()
}

// A Multi that has found the hold unreleased may go on for as long as it likes: the node
// under which it would take effect gets no other owner.
func TestMultiThatOverlapsTheReleaseTakesNoEffectUnderTheNextOwner(t *testing.T) {
	for _, c := range []struct {
		name   string
		opts   []tier.Option
		nested bool
		queued bool
	}{
		{"somebody waits", nil, false, true},
		{"nobody waits and the node may linger", []tier.Option{tier.WithLinger(1 << 40)}, false, false},
		{"the hold is an inner one", nil, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			zkMetered(t, func(t *testing.T, srv *zktest.Server, _ *zkMeter, process func(...tier.Option) *tier.Mutex) {
				mu := process(c.opts...)
				outer := acquire(t, mu)
				holds := []*tier.Hold{outer}
				if c.nested {
					inner, err := mu.Acquire(outer.Context(soon(t)))
					if err != nil {
						t.Fatal(err)
					}
					holds = []*tier.Hold{inner, outer}
				}
				var waiter *acquisition
				if c.queued {
					waiter = start(soon(t), mu).blocked(t)
				}
				var next *tier.Hold
				err := write(interruption{soon(t), sync.OnceFunc(func() {
					for _, hold := range holds {
						release(t, hold)
					}
					if waiter == nil {
						waiter = start(soon(t), mu)
					}
					next = waiter.granted(t)
				})}, holds[0])
				if !errors.Is(err, tier.ErrReleased) || srv.Exists("/written") {
					t.Errorf("got %v, written %t; want %v, false", err, srv.Exists("/written"), tier.ErrReleased)
				}
				if next.Token() <= outer.Token() {
					t.Errorf("the next owner has the node of the one that was writing")
				}
				release(t, next)
			})
		})
	}
}

// One goroutine writes without a pause, another one releases when an answer has come, a
// third one waits: nothing that the first one asked for takes effect once the third one
// has the lock.
func TestNoWriteOfTheFormerOwnerTakesEffectAfterTheHandOff(t *testing.T) {
	srv := zktest.Start(t)
	client, err := zklock.Dial(soon(t), "127.0.0.1", zklock.WithDialContext(srv.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	locks, err := tier.New(client.Tier())
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	mu, ctx := locks.Mutex("/locks/a"), soon(t)
	write := func(hold *tier.Hold, text string) error {
		_, err := tierlock.Multi(ctx, hold, &zk.SetDataRequest{Path: "/locks", Data: []byte(text), Version: -1})
		return err
	}

	const turns = 1000
	handedOn := 0
	hold := acquire(t, mu)
	for i := range turns {
		var (
			wg       sync.WaitGroup
			answered atomic.Bool
		)
		waiter := start(ctx, mu)
		wg.Go(func() {
			err := write(hold, "former")
			for ; err == nil; err = write(hold, "former") {
				answered.Store(true)
			}
			if !errors.Is(err, tier.ErrReleased) {
				t.Error(err)
			}
		})
		for !answered.Load() { // a channel would wake us too late: the next write would be under way
			runtime.Gosched()
		}
		for range i % 100 * 4 { // now a little earlier, now a little later
			answered.Load()
		}
		release(t, hold)
		next := waiter.granted(t)
		if err := write(next, "next"); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if data, _, _ := srv.Get("/locks"); string(data) != "next" {
			t.Fatalf("turn %d: %s owner's data after the next one's", i, data)
		}
		if next.Token() == hold.Token() {
			handedOn++
		}
		hold = next
	}
	release(t, hold)
	t.Logf("handed on in %d of %d turns", handedOn, turns)
}
