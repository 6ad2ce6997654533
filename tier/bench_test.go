package tier_test

import (
	"context"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// benchMutex is a lock on a private server that syncs its log, like one in production.
func benchMutex(b *testing.B, opts ...tier.Option) *tier.Mutex {
	srv := zkservertest.Start(b, zkserver.Config{TickTime: 2 * time.Second})
	client, err := zklock.Dial(b.Context(), srv.Addr())
	if err != nil {
		b.Fatal(err)
	}
	locks, err := tier.New(second.TierOf(client), opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { locks.Close() })
	return locks.Mutex("/bench/lock")
}

func turn(ctx context.Context, b *testing.B, mu *tier.Mutex) {
	hold, err := mu.Acquire(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if err := hold.Release(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLinger is a goroutine that locks and unlocks while the node lingers.
func BenchmarkLinger(b *testing.B) {
	mu := benchMutex(b, tier.WithLinger(time.Minute))
	turn(b.Context(), b, mu)
	b.ReportAllocs()
	for b.Loop() {
		turn(b.Context(), b, mu)
	}
}

// BenchmarkReentry acquires and releases below a hold.
func BenchmarkReentry(b *testing.B) {
	mu := benchMutex(b)
	hold, err := mu.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer hold.Release()
	ctx := hold.Context(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		turn(ctx, b, mu)
	}
}

// BenchmarkHandoff is the cost of a turn while 100 goroutines queue.
func BenchmarkHandoff(b *testing.B) {
	mu := benchMutex(b)
	b.ReportAllocs()
	b.SetParallelism(50)
	b.ResetTimer() // the server's start does not count
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			turn(b.Context(), b, mu)
		}
	})
}
