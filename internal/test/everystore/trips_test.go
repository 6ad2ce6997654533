//go:build unix

package everystore

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

// away is the time of a round trip to a distant server. A busy machine adds less than half of it.
const away = 200 * time.Millisecond

// The function distant returns an address that leads to addr. Data is delayed by half of away in each direction.
func distant(t *testing.T, addr string) string {
	t.Helper()
	l := need.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var pumps sync.WaitGroup
	var mu sync.Mutex // guards the variable below
	ends := []io.Closer{l}
	t.Cleanup(func() {
		mu.Lock()
		for _, end := range ends {
			end.Close()
		}
		mu.Unlock()
		pumps.Wait()
	})
	pumps.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				near.Close()
				continue
			}
			mu.Lock()
			ends = append(ends, near, far)
			mu.Unlock()
			pumps.Go(func() { pump(far, near) })
			pumps.Go(func() { pump(near, far) })
		}
	})
	return l.Addr().String()
}

// The function pump forwards data from one connection to the other, half a round trip later.
func pump(to, from net.Conn) {
	type flight struct {
		due  time.Time
		data []byte
	}
	flights := make(chan flight, 4096)
	go func() {
		defer close(flights)
		for {
			data := make([]byte, 1<<14)
			n, err := from.Read(data)
			if n > 0 {
				flights <- flight{time.Now().Add(away / 2), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for f := range flights {
		time.Sleep(time.Until(f.due))
		to.Write(f.data) // it does not matter if the connection has ended
	}
	to.Close()
}

// Each step takes one round trip. A transfer on MySQL takes a second one, because a process that is woken reads its queue. The quickest of
// three attempts counts, because a busy machine only adds time. On etcd and ZooKeeper, other tests count the requests of each step.
func TestRoundTripsToADistantServer(t *testing.T) {
	for _, s := range stores {
		if !slices.Contains([]string{"Redis", "PostgreSQL", "MySQL"}, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			addr := s.start(t)
			var locks [2]*tier.Registry
			for i := range locks {
				r := need.Get(s.connect(t, distant(t, addr)))(t)
				t.Cleanup(func() { r.Close() })
				locks[i] = r
			}
			measureTrips(t, locks, map[bool]float64{true: 2, false: 1}[s.name == "MySQL"])
		})
	}
}

func measureTrips(t *testing.T, locks [2]*tier.Registry, transfer float64) {
	ctx, path := soon(t), pathOf(t)
	took := make(map[string][]time.Duration)
	note := func(what string, begun time.Time) { took[what] = append(took[what], time.Since(begun)) }
	for range 4 { // in the first round, connections are made
		begun := time.Now()
		hold, err := locks[0].Mutex(path).Acquire(ctx)
		need.OK(t, err)
		note("acquire", begun)

		over := handOver(ctx, func(ctx context.Context) (releaser, error) { return locks[1].Mutex(path).Acquire(ctx) })
		time.Sleep(3 * away) // if the process does not wait by then, the attempt is slow, and a quicker one counts
		begun = time.Now()
		need.OK(t, hold.Release())
		note("release", begun)
		end := <-over
		need.OK(t, end.err)
		took["hand-over"] = append(took["hand-over"], end.at.Sub(begun))
		need.OK(t, end.Release())

		begun = time.Now()
		hold, err = locks[0].Mutex(path).TryAcquire(ctx)
		need.OK(t, err)
		note("try", begun)
		need.OK(t, hold.Release())

		begun = time.Now()
		permits, err := locks[0].Semaphore(path, 3).Acquire(ctx, 2)
		need.OK(t, err)
		note("permits", begun)
		over = handOver(ctx, func(ctx context.Context) (releaser, error) { return locks[1].Semaphore(path, 3).Acquire(ctx, 2) })
		time.Sleep(5 * away)
		begun = time.Now()
		need.OK(t, permits.Release())
		end = <-over
		need.OK(t, end.err)
		took["permits, hand-over"] = append(took["permits, hand-over"], end.at.Sub(begun))
		need.OK(t, end.Release())
	}
	for what, all := range took {
		all = all[1:]
		slices.Sort(all)
		least, median := float64(all[0])/float64(away), float64(all[len(all)/2])/float64(away)
		t.Logf("%-18s %.2f round trips, median of %d %.2f", what, least, len(all), median)
		want := 1.0
		if strings.Contains(what, "hand-over") {
			want = transfer
		}
		need.Between(t, what+", in round trips", least, 0.75, want+0.5)
	}
}

type releaser interface{ Release() error }

type handedOver struct {
	releaser
	at  time.Time
	err error
}

// handOver makes another process wait for the lock. The channel tells when that wait has ended.
func handOver(ctx context.Context, acquire func(context.Context) (releaser, error)) <-chan handedOver {
	over := make(chan handedOver, 1)
	go func() {
		r, err := acquire(ctx)
		over <- handedOver{r, time.Now(), err}
	}()
	return over
}
