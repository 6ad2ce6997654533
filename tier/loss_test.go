package tier_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// lost checks everything that a hold of a lost lock says.
func lost(ctx context.Context, t *testing.T, hold *tier.Hold) {
	t.Helper()
	<-hold.Lost()
	if <-ctx.Done(); !errors.Is(context.Cause(ctx), tier.ErrLost) {
		t.Errorf("cause of the hold's context: got %v, want ErrLost", context.Cause(ctx))
	}
	if err := hold.Err(); !errors.Is(err, tier.ErrLost) {
		t.Errorf("Err: got %v, want ErrLost", err)
	}
}

func TestExpiredSessionEndsEveryHoldOnce(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		outer := acquire(t, mu)
		outerCtx := outer.Context(t.Context())
		inner, err := mu.Acquire(outerCtx)
		if err != nil {
			t.Fatal(err)
		}
		innerCtx := inner.Context(t.Context())
		s.Expire("/locks/a", 0)
		lost(outerCtx, t, outer)
		lost(innerCtx, t, inner)
		lost(inner.Context(t.Context()), t, inner)
		for name, hold := range map[string]*tier.Hold{"outer": outer, "inner": inner} {
			if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("Release of the %s hold: got %v, want ErrLost", name, err)
			}
			if err := hold.Release(); !errors.Is(err, tier.ErrReleased) {
				t.Errorf("second Release of the %s hold: got %v, want ErrReleased", name, err)
			}
		}
		next := acquire(t, mu)
		if next.Token() <= outer.Token() {
			t.Errorf("token after loss: got %d, want above %d", next.Token(), outer.Token())
		}
		release(t, next)
	})
}

// A process never runs two sections at once, lease or no lease.
func TestGateStaysShutUntilTheLostHoldIsReleased(t *testing.T) { // I2
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a")
		hold := acquire(t, mu)
		inner, err := mu.Acquire(hold.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		waiter := start(soon(t), mu).blocked(t)
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		time.Sleep(10 * sessionTimeout) // time enough for anybody who does not care; virtual
		waiter.blocked(t)
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release of the outer hold: got %v, want ErrLost", err)
		}
		waiter.blocked(t)
		if err := inner.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release of the inner hold: got %v, want ErrLost", err)
		}
		next := waiter.granted(t)
		if next.Err() != nil || next.Token() <= hold.Token() {
			t.Errorf("next owner: err %v, token %d; want a node of its own, above %d", next.Err(), next.Token(), hold.Token())
		}
		release(t, next)
	})
}

// A watchdog notes whether a channel of losses is ever closed.
func watchdog(t *testing.T, what string, lost <-chan struct{}) {
	t.Helper()
	go func() {
		select {
		case <-lost:
			t.Errorf("%s: a loss is told of what was released without one", what)
		case <-t.Context().Done():
		}
	}()
}

func TestReleaseWithoutLossTellsOfNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks, other := process(t, s), process(t, s)
		mu := locks.Mutex("/locks/a")
		hold := acquire(t, mu)
		watchdog(t, "watched", hold.Lost())
		time.Sleep(sessionTimeout) // its end has long been watched
		local, remote := start(soon(t), mu).blocked(t), start(soon(t), other.Mutex("/locks/a")).blocked(t)
		release(t, hold) // by a requeue
		hold = remote.granted(t)
		watchdog(t, "waited for", hold.Lost())
		release(t, hold)
		release(t, local.granted(t))

		rw := locks.RWMutex("/locks/rw")
		writer, err := rw.Writer().Acquire(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		watchdog(t, "shared", writer.Lost())
		reads := writer.Context(t.Context())
		reader, err := rw.Reader().Acquire(reads)
		if err != nil {
			t.Fatal(err)
		}
		release(t, writer)
		time.Sleep(sessionTimeout)
		release(t, reader)

		permits, err := locks.Semaphore("/permits", 3).Acquire(soon(t), 2)
		if err != nil {
			t.Fatal(err)
		}
		watchdog(t, "permits", permits.Lost())
		time.Sleep(sessionTimeout)
		if err := permits.Release(); err != nil {
			t.Error(err)
		}
		time.Sleep(sessionTimeout)
		synctest.Wait()
	})
}

func TestReleaseThatFindsALossTellsOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		locks := process(t, s)
		hold := acquire(t, locks.Mutex("/locks/a"))
		permits, err := locks.Semaphore("/permits", 3).Acquire(soon(t), 2)
		if err != nil {
			t.Fatal(err)
		}
		s.Remove("/locks/a", 0)
		s.Remove("permits of /permits", 0)
		for what, it := range map[string]struct {
			release func() error
			lost    <-chan struct{}
		}{"hold": {hold.Release, hold.Lost()}, "permits": {permits.Release, permits.Lost()}} {
			if err := it.release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("%s: Release of what was deleted: %v, want ErrLost", what, err)
			}
			select {
			case <-it.lost:
			default:
				t.Errorf("%s: Release says that it is lost, and Lost does not", what)
			}
		}
	})
}

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
	locks, err := tier.New(second.TierOf(client))
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
