package zklock_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// tick is close to the longest with which the lease holds, a quarter of the timeout.
const tick = timeout/4 - 100*time.Millisecond

// divided lets a holder lose its lock to a partition between servers, after each of several times, and checks that it
// knows a margin before the servers do.
func divided(t *testing.T, name string, divide func(t *testing.T, m *zktest.Member, n *zklock.Node)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for after := time.Duration(0); after <= timeout; after += 270 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				s := zktest.Start(t, zktest.Config{Tick: tick})
				n := start(t, s).acquire(t)
				gone := deleted(s, n)
				time.Sleep(after)
				go divide(t, s.Member(addr), n)
				awaitLoss(t, n)
				lost := time.Now()
				wantErr(t, "Err", n.Err(), zklock.ErrLost)
				if d := (<-gone).Sub(lost); d < timeout-lease {
					t.Errorf("divided after %v: the servers gave up %v after the loss, want at least the margin %v", after, d, timeout-lease)
				}
				time.Sleep(time.Minute)
			})
		}
	})
}

// It answers a sync, and shows its past.
func TestAbsenceIsNotBelievedOfADeposedLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var server atomic.Value
		const old, present = "127.0.0.2:2181", addr
		server.Store(present)
		p := start(t, s, zklock.WithDialContext(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return s.DialContext(ctx, network, server.Load().(string))
		}))
		p.acquire(t).Release() // there is a path
		s.Member(old).Depose()
		created := 0
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				if c.Kind == zktest.Created {
					created++
				}
			}
		})
		var cut atomic.Bool
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpCreate && f.Stage == zktest.Reply && !cut.Swap(true) {
				server.Store(old)
				return zktest.Cut
			}
			return zktest.Pass
		})
		r := p.queue(t.Context())
		time.Sleep(2 * time.Second)
		s.Member(old).Rejoin()
		r.await(t)
		if r.granted(t).Release(); created != 1 {
			t.Errorf("%d nodes were created, want the one whose answer was lost", created)
		}
	})
}
