package dropin_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/zklock/dropin"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// A locker creates handles, each for one goroutine.
type locker func() zkLock

// fleet starts ten goroutines for each locker. They acquire the lock again and again for some seconds of virtual time. fleet returns how
// many times each locker had the lock.
func fleet(t *testing.T, section time.Duration, lockers ...locker) []int {
	t.Helper()
	ctx := need.Within(t, 5*time.Second+500*section) // enough time for 16 rounds
	turns := make([]int, len(lockers))               // guarded by the lock under test
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

// During a migration to dropin, a migrated process has one node in the queue instead of ten. It must still get at least as many
// acquisitions as before.
func TestProcessThatHasMovedKeepsItsShare(t *testing.T) { // I11
	for _, section := range []time.Duration{2 * time.Millisecond, 30 * time.Millisecond} {
		t.Run(section.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *zktest.Server) {
				srv.Intercept(func(f *zktest.Frame) zktest.Action { // makes a write take its time
					if f.Dir == zktest.Request && (f.Op == "create" || f.Op == "delete" || f.Op == "multi") {
						return zktest.Delay(time.Millisecond)
					}
					return zktest.Pass
				})
				const path = "/locks/a"
				acl := zk.WorldACL(zk.PermAll)
				old := func() locker {
					conn := outsider(t, modelAddr, srv.DialTimeout)
					return func() zkLock { return zk.NewLock(conn, path, acl) }
				}
				moved := func() locker {
					conn := outsider(t, modelAddr, srv.DialTimeout)
					return func() zkLock { return dropin.NewLock(conn, path, acl) }
				}
				turns := fleet(t, section, moved(), moved(), old(), old())
				fair := float64(turns[0]+turns[1]+turns[2]+turns[3]) / 4
				for i, n := range turns {
					need.AtLeast(t, fmt.Sprintf("the part of its fair share that locker %d has, of %v", i, turns), float64(n)/fair, 0.8)
				}
			})
		})
	}
}
