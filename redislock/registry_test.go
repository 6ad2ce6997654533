package redislock

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/retry"
	"github.com/tierlock/tierlock/tier"
)

func locks(t *testing.T, client *redis.Client, opts ...Option) *tier.Registry {
	t.Helper()
	registry, err := New(client, append([]Option{WithLeaseTTL(ttl)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { registry.Close() })
	return registry
}

func ownClient(t *testing.T) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server(t).Addr()})
	t.Cleanup(func() { client.Close() })
	return client
}

func TestTryRightAfterNewWaitsForTheFirstConnection(t *testing.T) {
	t.Parallel()
	// try is right after New, over a client whose connections take a while.
	try := func(addr string, delay, within time.Duration) (*tier.Hold, error) {
		client := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if err := retry.Pause(t.Context(), delay); err != nil { // ctx does not end with the client
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
		t.Cleanup(func() { client.Close() })
		registry, err := New(client) // for whose lease so short a delay is nothing
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { registry.Close() })
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return registry.Mutex(lockPath(t)).TryAcquire(ctx)
	}
	hold, err := try(server(t).Addr(), 200*time.Millisecond, time.Minute)
	if err == nil {
		err = hold.Release()
	} else if errors.Is(err, tier.ErrLocked) {
		err = nil // the server is new, as its answer says
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := try(server(t).Addr(), time.Hour, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a try that is given up: %v", err)
	}
	begun := time.Now()
	if _, err := try("127.0.0.1:1", 0, time.Minute); err == nil || time.Since(begun) > 30*time.Second {
		t.Errorf("a try where nobody is: %v after %v", err, time.Since(begun))
	}
}

func TestGoroutinesOfSeveralProcessesAreOneAtATime(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	count, turns := 0, 0
	for range 3 {
		mutex := locks(t, ownClient(t), tier.WithHandOff(5*time.Millisecond)).Mutex(lockPath(t))
		for range 10 {
			all.Go(func() {
				for range 20 {
					err := mutex.Do(soon(t), func(context.Context) error {
						if count++; count != 1 {
							t.Errorf("%d at a time", count)
						}
						turns++
						count--
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	if turns != 600 {
		t.Errorf("%d turns", turns)
	}
	eventually(t, "nobody queues", func() bool { return len(left(t, lockPath(t))) == 0 })
}

func TestEvalOfAHoldThatHasHandedOnIsNotSent(t *testing.T) {
	t.Parallel()
	mutex := locks(t, ownClient(t)).Mutex(lockPath(t))
	first, err := mutex.Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan *tier.Hold)
	go func() {
		hold, err := mutex.Acquire(soon(t))
		if err != nil {
			t.Error(err)
		}
		next <- hold
	}()
	time.Sleep(20 * time.Millisecond) // likely queued locally; true either way
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	second := <-next
	if _, err := Eval(soon(t), first, increment, []string{counter(t)}); !errors.Is(err, tier.ErrReleased) {
		t.Errorf("got %v, want ErrReleased", err)
	}
	if _, err := Eval(soon(t), second, increment, []string{counter(t)}); err != nil {
		t.Error(err)
	}
	if n := count(t); n != "1" {
		t.Errorf("executed %s times", n)
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}

func TestClientThatIsClosedFirstLosesEveryLock(t *testing.T) {
	t.Parallel()
	client := ownClient(t)
	registry := locks(t, client)
	hold, err := registry.Mutex(lockPath(t)).Acquire(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
	ended(t, "the loss", hold.Lost(), ttl)
	ended(t, "the end of the registry", registry.Done(), ttl)
	if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
		t.Errorf("Release: %v, want ErrLost", err)
	}
}

func TestRegistryDoesNotWaitForRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer client.Close()
	begun := time.Now()
	registry := locks(t, client)
	if d := time.Since(begun); d > time.Second {
		t.Errorf("New took %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := registry.Mutex("x").Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire: %v, want DeadlineExceeded", err)
	}
}
