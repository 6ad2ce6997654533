package zklock_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func mute(s *zktest.Server, p process, directions ...zktest.Direction) {
	for _, d := range directions {
		s.Mute(p.session, d)
	}
}

// deleted returns a channel that gets the time at which the server deletes n.
func deleted(s *zktest.Server, n *zklock.Node) <-chan time.Time {
	at := make(chan time.Time, 1)
	s.OnChange(func(_ zktest.View, changes []zktest.Change) {
		for _, c := range changes {
			if c.Kind == zktest.Deleted && c.Path == n.Path() {
				at <- time.Now()
			}
		}
	})
	return at
}

func TestI7LostClosesWhenTheLeaseEndsAndBeforeTheServerGivesUp(t *testing.T) {
	for _, directions := range [][]zktest.Direction{
		{zktest.ToServer, zktest.ToClient}, {zktest.ToServer}, {zktest.ToClient},
	} {
		for after := time.Duration(0); after <= timeout; after += 610 * time.Millisecond {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				n := p.acquire(t)
				gone := deleted(s, n)
				time.Sleep(after)
				mute(s, p, directions...)
				muted := time.Now()
				awaitLoss(t, n)
				lost := time.Now()
				wantErr(t, "Err", n.Err(), zklock.ErrLost)
				if d := lost.Sub(muted); d > lease || d < lease-beat {
					t.Errorf("muted %v after %v: lost after %v, want %v to %v", directions, after, d, lease-beat, lease)
				}
				if !slices.Contains(directions, zktest.ToServer) {
					return // the server goes on hearing of the session
				}
				time.Sleep(2 * timeout)
				if d := (<-gone).Sub(lost); d < timeout-lease {
					t.Errorf("muted %v after %v: the server gave up %v after the loss, want at least the margin %v",
						directions, after, d, timeout-lease)
				}
			})
		}
	}
}

func TestMarginMovesTheEndOfTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const margin = 3 * time.Second
		p := start(t, s, zklock.WithLeaseMargin(margin))
		n := p.acquire(t)
		mute(s, p, zktest.ToServer, zktest.ToClient)
		muted := time.Now()
		awaitLoss(t, n)
		if d := time.Since(muted); d != timeout-margin {
			t.Errorf("lost after %v, want %v", d, timeout-margin)
		}
	})
}

func TestEventsDoNotRenewTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		n := p.acquire(t)
		mute(s, p, zktest.ToServer)
		muted := time.Now()
		time.Sleep(2 * time.Second)
		if _, err := conn.Set(n.Path(), nil, -1); err != nil { // an event to the holder
			t.Fatal(err)
		}
		awaitLoss(t, n)
		if d := time.Since(muted); d != lease {
			t.Errorf("lost after %v, want %v", d, lease)
		}
	})
}

func TestSlowAnswerRenewsFromTheTimeOfItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const delay = 600 * time.Millisecond
		p := start(t, s)
		n := p.acquire(t)
		begun := time.Now()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Reply && f.Op == zktest.OpExists { // the first heartbeat, at the beat
				return zktest.Delay(delay)
			}
			return zktest.Pass
		})
		time.Sleep(beat + delay)
		synctest.Wait() // the answer is there
		mute(s, p, zktest.ToServer, zktest.ToClient)
		awaitLoss(t, n)
		if d := time.Since(begun); d != beat+lease {
			t.Errorf("lost after %v, want %v", d, beat+lease)
		}
	})
}

func TestErrReadsTheClockItself(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		mute(s, p, zktest.ToServer, zktest.ToClient)
		n.StopWatchdog()
		if time.Sleep(lease - 1); n.Err() != nil {
			t.Errorf("Err just before the end of the lease: %v", n.Err())
		}
		time.Sleep(1)
		wantErr(t, "Err at the end of the lease", n.Err(), zklock.ErrLost)
		select {
		case <-n.Lost():
		default:
			t.Error("Lost is open although Err knows")
		}
	})
}

func TestLateAnswerDoesNotReviveALostHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		n.StopWatchdog()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Reply && f.Op == zktest.OpExists && f.NthOfSession == 1 { // sent at the beat
				return zktest.Delay(lease - 500*time.Millisecond)
			}
			return zktest.Pass
		})
		time.Sleep(beat + lease - 500*time.Millisecond + 1)
		synctest.Wait()
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
	})
}

func TestHeartbeatKeepsThePromisedPaceWhileHolding(t *testing.T) {
	for _, tt := range []struct{ timeout, want time.Duration }{{6 * time.Second, time.Second}, {30 * time.Second, 2 * time.Second}} {
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

func TestNothingHeldMeansNoHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		tr := record(s)
		time.Sleep(time.Minute)
		if got := tr.take(); len(got) > 0 {
			t.Errorf("sent while idle: %v", got)
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
		tr := record(s)
		time.Sleep(10*beat + beat/2)
		if got := len(tr.take()); got != 10 {
			t.Errorf("%d heartbeats in ten beats", got)
		}
	})
}

// A margin of nearly the whole timeout makes the lease of a waiter run out between the pings.
func TestI1GrantWaitsForAValidLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s, zklock.WithLeaseMargin(timeout-500*time.Millisecond)).queue(t.Context())
		time.Sleep(time.Second)
		n.Release()
		r.await(t)
		if next := r.granted(t); next.Err() != nil {
			t.Errorf("granted with an ended lease: %v", next.Err())
		}
	})
}
