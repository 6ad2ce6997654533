package tier_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/tier"
)

// benchMutex returns a lock on a private server. The server syncs its log, as it does in production.
func benchMutex(b *testing.B, opts ...tier.Option) *tier.Mutex {
	client := need.Get(zknode.Dial(b.Context(), childtest.Start(b, zkserver.Start, zkserver.Config{TickTime: 2 * time.Second}).Addr()))(b)
	locks := tier.New(zknode.Tier(client), opts...)
	b.Cleanup(func() { locks.Close() })
	return locks.Mutex("/bench/lock")
}

// turn acquires and releases the lock. It uses no test helpers, because a helper would take longer than the lock.
func turn(ctx context.Context, b *testing.B, mu *tier.Mutex) {
	if hold, err := mu.Acquire(ctx); err != nil {
		b.Error(err)
	} else if err = hold.Release(); err != nil {
		b.Error(err)
	}
}

// BenchmarkLinger measures a goroutine that acquires and releases a lock whose contender lingers. The goals in stress/internal/bench use
// this name.
func BenchmarkLinger(b *testing.B) {
	mu, ctx := benchMutex(b, tier.WithLinger(time.Minute)), b.Context()
	for b.Loop() {
		turn(ctx, b, mu)
	}
}

// BenchmarkReentry acquires and releases a lock that the context already holds. The goals in stress/internal/bench use this name.
func BenchmarkReentry(b *testing.B) {
	mu := benchMutex(b)
	ctx := need.Get(mu.Acquire(b.Context()))(b).Context(b.Context())
	for b.Loop() {
		turn(ctx, b, mu)
	}
}

// BenchmarkHandOff measures acquisitions by a hundred goroutines of one process. The goals in stress/internal/bench use this name.
func BenchmarkHandOff(b *testing.B) {
	mu, ctx := benchMutex(b), b.Context()
	b.SetParallelism(50)
	b.ResetTimer() // so that the start of the server does not count
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			turn(ctx, b, mu)
		}
	})
}
