package agent_test

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tierlock/tierlock/agentlock"
	"github.com/tierlock/tierlock/cmd/tierlock/internal/agent"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/tier"
)

const leaseOfTests = 5 * time.Second

// serve starts an agent at a Unix socket, and returns the address of the socket.
func serve(tb testing.TB, lease time.Duration) string {
	tb.Helper()
	return serveAt(tb, filepath.Join(tb.TempDir(), "agent.sock"), lease)
}

func serveAt(tb testing.TB, socket string, lease time.Duration) string {
	tb.Helper()
	locks := need.Get(memlock.NewServer().Connect(tier.WithLeaseTTL(3 * lease)))(tb)
	a := agent.New(locks, agent.Config{
		Lease: lease, Clients: 5000, Check: func(string) error { return nil }, Logger: slog.New(slog.DiscardHandler),
	})
	l := need.Get(net.Listen("unix", socket))(tb)
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	tb.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		a.Shutdown(now)
		need.OK(tb, <-served)
	})
	return "unix:" + socket
}

func dial(tb testing.TB, address string) *tier.Registry {
	tb.Helper()
	locks := need.Get(agentlock.Dial(tb.Context(), address))(tb)
	tb.Cleanup(func() { locks.Close() })
	return locks
}

// A transfer is the time from the call of Release in one client until Acquire returns in another one that waits.
func BenchmarkTransferBetweenClientsOfOneHost(b *testing.B) {
	address := serve(b, leaseOfTests)
	clients := []*tier.Mutex{dial(b, address).Mutex("/a"), dial(b, address).Mutex("/a")}
	hold := need.Get(clients[0].Acquire(b.Context()))(b)
	var took []time.Duration
	for i := 1; b.Loop(); i++ {
		next := make(chan *tier.Hold, 1)
		go func() { next <- need.Get(clients[i%2].Acquire(b.Context()))(b) }()
		time.Sleep(3 * time.Millisecond) // the client is in the queue by then
		begun := time.Now()
		go hold.Release()
		hold = <-next
		took = append(took, time.Since(begun))
	}
	need.OK(b, hold.Release())
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
}

// An acquisition without contention, and its release.
func BenchmarkUncontended(b *testing.B) {
	mu := dial(b, serve(b, leaseOfTests)).Mutex("/a")
	for b.Loop() {
		need.OK(b, need.Get(mu.Acquire(b.Context()))(b).Release())
	}
}
