//go:build unix

package everystore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/tierlock/tierlock/internal/etcdserver"
	"github.com/tierlock/tierlock/internal/etcdserver/etcdservertest"
	"github.com/tierlock/tierlock/internal/need"
	"github.com/tierlock/tierlock/internal/pgserver"
	"github.com/tierlock/tierlock/internal/pgserver/pgservertest"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/redisserver"
	"github.com/tierlock/tierlock/internal/redisserver/redisservertest"
	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/pglock"
	"github.com/tierlock/tierlock/redislock"
	"github.com/tierlock/tierlock/tier"
)

// Two hundred goroutines of one process take any of a thousand locks. Beside them are the requests of such turns as they are sent to the
// store, without a lock: to keep the promises must not cost much more than these. The servers sync their logs.
func BenchmarkManyLocks(b *testing.B) {
	for _, s := range []struct {
		name    string
		connect connect
		start   func(b *testing.B) (addr string)
	}{
		{"etcd", etcd, func(b *testing.B) string { return etcdservertest.Start(b, etcdserver.Config{}).Addr() }},
		{"Redis", redisNew, func(b *testing.B) string { return redisservertest.Start(b, redisserver.Config{}).Addr() }},
		{"PostgreSQL", postgres(pglock.New), func(b *testing.B) string {
			addr := pgservertest.Start(b, pgserver.Config{}).Addr()
			operator := need.Get(pool(b, addr))(b)
			need.OK(b, pglock.Migrate(b.Context(), operator))
			return addr
		}},
	} {
		b.Run(s.name, func(b *testing.B) {
			var session atomic.Value
			queue.Recorder = func(r queue.Record) {
				if r.Command.Op == queue.Open && r.Answer.Outcome == queue.Done {
					session.Store(r.Answer.Name)
				}
			}
			locks := need.Get(s.connect(b, s.start(b)))(b)
			defer locks.Close()
			hold := need.Get(locks.Mutex("/first").Acquire(b.Context()))(b)
			store := second.GrantOf(hold).(*queue.Contender).Store()
			need.OK(b, hold.Release())
			turns(b, "locks", func(ctx context.Context, path string) error {
				return locks.Mutex(path).Do(ctx, func(context.Context) error { return nil })
			})
			turns(b, "requests", func(ctx context.Context, path string) error {
				c := queue.Command{Op: queue.Enter, Session: session.Load().(string)}
				c.Path, c.ID = path, store.Name(c.Session)
				a := store.Do(ctx, c)
				if a.Outcome == queue.Done {
					c.Op, c.Token = queue.Leave, a.View.Token
					a = store.Do(ctx, c)
				}
				return a.Err
			})
		})
	}
}

func turns(b *testing.B, name string, turn func(ctx context.Context, path string) error) {
	b.Run(name, func(b *testing.B) {
		b.SetParallelism(100) // on each of two cores
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				need.OK(b, turn(b.Context(), fmt.Sprint("/many/", rand.IntN(1000))))
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	})
}

func redisNew(t testing.TB, addr string) (*tier.Registry, error) {
	return redisAt(t, addr, redislock.WithNewServer())
}
