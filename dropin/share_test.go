package dropin_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/dropin"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// A mutexHandle is a Mutex with the methods of a zk.Lock.
type mutexHandle struct {
	mu   *tier.Mutex
	hold *tier.Hold
}

func (h *mutexHandle) Lock() (err error) {
	h.hold, err = h.mu.Acquire(context.Background()) // zk.Lock has no context
	return err
}

func (h *mutexHandle) Unlock() error { return h.hold.Release() }

// A locker makes the handles of one goroutine each.
type locker func() sharedLock

type sharedLock interface {
	Lock() error
	Unlock() error
}

// fleet lets ten goroutines of each locker take turns for some seconds of virtual time,
// and returns how many each locker had.
func fleet(t *testing.T, section time.Duration, lockers ...locker) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+500*section) // 16 rounds at least
	defer cancel()
	turns := make([]int, len(lockers)) // guarded by the lock under test
	var wg sync.WaitGroup
	for i, newLock := range lockers {
		for range 10 {
			lock := newLock()
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := lock.Lock(); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(section)
					turns[i]++
					if err := lock.Unlock(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	return turns
}

// While a fleet moves, a process with one node has the turns that it had with ten: with
// NewLock at least, in strict order by rounds neither more nor less, so that it takes
// none from the others however short the section.
func TestProcessThatHasMovedKeepsItsShare(t *testing.T) { // I11
	for name, c := range map[string]struct {
		section time.Duration
		strict  bool
	}{
		"NewLock, 2 ms":  {2 * time.Millisecond, false},
		"NewLock, 30 ms": {30 * time.Millisecond, false},
		"strict, empty":  {0, true},
		"strict, 2 ms":   {2 * time.Millisecond, true},
		"strict, 30 ms":  {30 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				srv.Intercept(func(f *zktest.Frame) zktest.Action { // a write takes its time
					if f.Dir == zktest.Request && (f.Op == "create" || f.Op == "delete" || f.Op == "multi") {
						return zktest.Delay(time.Millisecond)
					}
					return zktest.Pass
				})
				const path = "/locks/a"
				acl := zk.WorldACL(zk.PermAll)
				old := func() locker {
					conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
					return func() sharedLock { return zk.NewLock(conn, path, acl) }
				}
				moved := func() locker {
					if c.strict {
						mu := process(t, srv, tier.WithHandOff(0), tier.WithRounds())
						return func() sharedLock { return &mutexHandle{mu: mu} }
					}
					conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
					return func() sharedLock { return dropin.NewLock(conn, path, acl) }
				}
				turns := fleet(t, c.section, moved(), moved(), old(), old())
				fair := float64(turns[0]+turns[1]+turns[2]+turns[3]) / 4
				for i, n := range turns {
					if share := float64(n) / fair; share < 0.8 {
						t.Errorf("locker %d has %.2f of its fair share, want 0.8: %v", i, share, turns)
					}
				}
			})
		})
	}
}
