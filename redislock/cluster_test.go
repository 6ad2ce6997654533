package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/tier"
)

// All keys of a lock are in one slot, and messages reach every process.
func TestLockInACluster(t *testing.T) {
	t.Parallel()
	s := redisservertest.Start(t, redisserver.Config{NoSync: true, Cluster: true})
	registry := func() *tier.Registry {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
		t.Cleanup(func() { client.Close() })
		locks, err := New(client, WithLeaseTTL(ttl), tier.WithHandOff(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close() })
		return locks
	}
	a, b := registry(), registry()
	for _, path := range []string{"job", "{job}:1"} {
		hold, err := a.Mutex(path).Acquire(soon(t)) // after the quarantine of a new server
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Eval(soon(t), hold, increment, []string{"{job}:count"}); err != nil || got == nil {
			t.Errorf("Eval: %v, %v", got, err)
		}
		next := make(chan *tier.Hold, 1)
		go func() {
			h, err := b.Mutex(path).Acquire(soon(t))
			if err != nil {
				t.Error(err)
			}
			next <- h
		}()
		ended(t, "the holder hears of the one who waits", hold.Contested(), ttl/2)
		released := time.Now()
		if err := hold.Release(); err != nil {
			t.Error(err)
		}
		h := <-next
		if d := time.Since(released); d > ttl/5 {
			t.Errorf("granted after %v", d)
		}
		if h.Token() <= hold.Token() {
			t.Errorf("token %d after %d", h.Token(), hold.Token())
		}
		if err := h.Release(); err != nil {
			t.Error(err)
		}
	}
}
