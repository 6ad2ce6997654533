package zklock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestHeartbeatKeepsThePromisedPaceWhileHolding(t *testing.T) {
	for _, tt := range []struct{ timeout, want time.Duration }{{6 * time.Second, 750 * time.Millisecond}, {30 * time.Second, 3750 * time.Millisecond}} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s, zklock.WithSessionTimeout(tt.timeout))
			n := p.acquire(t)
			var mu sync.Mutex
			last, gap := time.Now(), time.Duration(0)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				mu.Lock()
				defer mu.Unlock()
				if f.Stage == zktest.Request {
					last, gap = time.Now(), max(gap, time.Since(last))
				}
				return zktest.Pass
			})
			time.Sleep(10 * tt.timeout)
			n.Release()
			mu.Lock()
			defer mu.Unlock()
			if gap > tt.want || gap == 0 {
				t.Errorf("T %v: silent for %v, want at most %v", tt.timeout, gap, tt.want)
			}
		})
	}
}

// What an idle process sends keeps the next acquisition at one round trip, and costs the servers no write.
func TestNothingHeldMeansNoWrites(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		tr := record(s)
		time.Sleep(time.Minute)
		if ops := tr.take(); len(ops) > 0 {
			t.Errorf("sent while idle: %v", ops)
		}
		if want := int(time.Minute / beat); tr.beats == 0 || tr.beats > want {
			t.Errorf("%d syncs in a minute, want some and at most %d", tr.beats, want)
		}
	})
}

func TestManyHeldLocksShareOneHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		for _, path := range []string{"/locks/a", "/locks/b", "/locks/c"} {
			if _, err := lockAt(t, p.Client, path).Acquire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		awaitWatch()
		tr := record(s)
		time.Sleep(10*beat + beat/2)
		if got := tr.take(); tr.beats != 10 || len(got) != 10 || got[0] != zktest.OpMulti {
			t.Errorf("ten beats took %d syncs and %v, want a sync and a write each", tr.beats, got)
		}
	})
}

func TestFirstAcquireAfterAQuietHourHasALease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		time.Sleep(time.Hour)
		r := p.queue(t.Context()) // returns before any time has passed
		if n := r.granted(t); n.Err() != nil {
			t.Errorf("granted with an ended lease: %v", n.Err())
		}
	})
}

// One lock whose owner is slow to give it up after its node was deleted must not cost another one.
func TestNodeThatIsGoneDoesNotStarveTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		gone := p.acquire(t)
		n, err := lockAt(t, p.Client, "/locks/y").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		awaitWatch()
		if err := conn.Delete(gone.Path(), -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantErr(t, "Err of the deleted one", gone.Err(), zklock.ErrLost)
		wantKept(t, n, 20*timeout)
	})
}

// wantKept fails if n is lost within d.
func wantKept(t *testing.T, n *zklock.Node, d time.Duration) {
	t.Helper()
	begun := time.Now()
	select {
	case <-n.Lost():
		t.Errorf("lost after %v: %v", time.Since(begun), n.Err())
	case <-time.After(d):
	}
}

func TestHeartbeatIsPacedByWhatWasGranted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const granted = 2 * time.Second
		p := start(t, s, zklock.WithSessionTimeout(15*time.Second), zklock.WithDialContext(granting(s, []time.Duration{granted})))
		wantKept(t, p.acquire(t), 20*granted)
	})
}

// It would prove nothing new.
func TestNoWriteFollowsASyncThatFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		start(t, s).acquire(t)
		var syncs, writes atomic.Int64
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Stage != zktest.Request:
			case f.Op == zktest.OpSync:
				syncs.Add(1)
				return zktest.Error(zktest.CodeThrottled)
			case f.Op == zktest.OpMulti:
				writes.Add(1)
			}
			return zktest.Pass
		})
		time.Sleep(lease / 2)
		if syncs.Load() == 0 || writes.Load() > 0 {
			t.Errorf("%d syncs, %d writes", syncs.Load(), writes.Load())
		}
	})
}

func TestSlowAnswersTakeNoneOfThePace(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Reply && heartbeat(f) && f.Op != zktest.OpPing {
				return zktest.Delay(timeout / 12)
			}
			return zktest.Pass
		})
		wantKept(t, n, 10*timeout)
	})
}

// The heartbeats prove nothing any more, and the holder is not left in the dark until the lease ends.
func TestHolderThatMayNoLongerReadItsNodeIsToldSoByAHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		awaitWatch()
		if _, err := raw(t, s).SetACL(n.Path(), zk.WorldACL(zk.PermDelete), -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * beat)
		wantErr(t, "the loss", context.Cause(n.Context()), zk.ErrNoAuth)
	})
}
