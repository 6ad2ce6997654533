package tier_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// fleet lets ten goroutines on each connection, of which the first two have moved to
// NewLock, take turns for some seconds of virtual time, and returns how many each
// connection had.
func fleet(t *testing.T, srv *zktest.Server, section time.Duration) (turns [4]int) {
	t.Helper()
	const path = "/locks/a"
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range turns {
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		for range 10 {
			var lock zkLock = zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			if i < 2 {
				lock = tier.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			}
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := lock.Lock(); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(section)
					turns[i]++ // guarded by the lock under test
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

// While a fleet moves, a process with one node has the turns that it had with ten.
func TestProcessThatHasMovedKeepsItsShare(t *testing.T) { // I11
	for _, section := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 30 * time.Millisecond} {
		t.Run(section.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				srv.Intercept(func(f *zktest.Frame) zktest.Action { // a write takes its time
					if f.Stage == zktest.Request && (f.Op == zktest.OpCreate || f.Op == zktest.OpDelete || f.Op == zktest.OpMulti) {
						return zktest.Delay(time.Millisecond)
					}
					return zktest.Pass
				})
				turns := fleet(t, srv, section)
				fair := float64(turns[0]+turns[1]+turns[2]+turns[3]) / 4
				for i, n := range turns {
					if share := float64(n) / fair; share < 0.8 {
						t.Errorf("connection %d has %.2f of its fair share, want 0.8: %v", i, share, turns)
					}
				}
			})
		})
	}
}
