package tier

import (
	"context"
	"sync"
	"testing"

	"golang.org/x/sync/semaphore"
)

// crowded runs turns from 100 goroutines or so.
func crowded(b *testing.B, turn func()) {
	b.ReportAllocs()
	b.SetParallelism(50)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			turn()
		}
	})
}

// BenchmarkGate is a mutex made of a gate and nothing else: the part of a hand-off that
// waiting first in, first out costs.
func BenchmarkGate(b *testing.B) {
	var (
		mu     sync.Mutex
		g      gate[int]
		locked bool
	)
	crowded(b, func() {
		mu.Lock()
		var w *waiter[int]
		if locked {
			w = g.join()
		}
		locked = true
		mu.Unlock()
		if w != nil {
			<-w.turn
		}
		mu.Lock()
		if g.empty() {
			locked = false
		} else {
			g.admit()
		}
		mu.Unlock()
	})
}

// BenchmarkSemaphore is for orientation: x/sync's, first in, first out and with a
// context, as a hand-off is.
func BenchmarkSemaphore(b *testing.B) {
	s := semaphore.NewWeighted(1)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	crowded(b, func() {
		if err := s.Acquire(ctx, 1); err != nil {
			b.Error(err)
		}
		s.Release(1)
	})
}

// BenchmarkSyncMutex is for orientation: what a turn costs without order, context and
// network.
func BenchmarkSyncMutex(b *testing.B) {
	var mu sync.Mutex
	crowded(b, func() {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // an empty section is the point
	})
}
