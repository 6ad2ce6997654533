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

// delayWrites delays the answers to the writes of heartbeats from the nth on.
func delayWrites(s *zktest.Server, nth int, delay time.Duration) {
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Stage == zktest.Reply && f.Op == zktest.OpMulti && f.NthOfSession >= nth {
			return zktest.Delay(delay)
		}
		return zktest.Pass
	})
}

func TestLeaseRunsFromTheRequestThatTheServerIsProvenToHaveHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const delay = 600 * time.Millisecond
		p := start(t, s)
		n := p.acquire(t)
		begun := time.Now()
		delayWrites(s, 2, delay)
		time.Sleep(2*beat + delay)
		synctest.Wait() // the second write proves that the sync of the first beat was heard of
		mute(s, p, zktest.ToServer, zktest.ToClient)
		awaitLoss(t, n)
		if d := time.Since(begun); d != beat+lease {
			t.Errorf("lost after %v, want %v", d, beat+lease)
		}
	})
}

func TestWaiterKeepsItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		r := start(t, s).queue(t.Context())
		time.Sleep(time.Hour)
		n.Release()
		if next := r.granted(t); next.Err() != nil {
			t.Errorf("granted with an ended lease: %v", next.Err())
		}
	})
}

// granting returns a dialer whose nth connection says that the server has granted the nth timeout.
func granting(s *zktest.Server, timeouts []time.Duration) func(context.Context, string, string) (net.Conn, error) {
	var dials atomic.Int64
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &grant{Conn: conn, timeout: timeouts[min(int(dials.Add(1)), len(timeouts))-1]}, nil
	}
}

type grant struct {
	net.Conn
	timeout time.Duration
	read    int
}

func (g *grant) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	const at = 8 // of the timeout, behind length and version
	for i := range n {
		if k := g.read + i - at; 0 <= k && k < 4 {
			p[i] = byte(g.timeout.Milliseconds() >> (8 * (3 - k)))
		}
	}
	g.read += n
	return n, err
}

func TestShorterTimeoutOfAReconnectCountsForGood(t *testing.T) {
	for _, tt := range []struct{ granted, want time.Duration }{{3 * time.Second, 3 * time.Second}, {12 * time.Second, timeout}} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s, zklock.WithDialContext(granting(s, []time.Duration{timeout, tt.granted, timeout})))
			n := p.acquire(t)
			for range 2 {
				s.Cut(p.session)
				time.Sleep(2 * time.Second)
			}
			time.Sleep(tt.want / 8 * 4) // some beats
			mute(s, p, zktest.ToServer, zktest.ToClient)
			muted := time.Now()
			awaitLoss(t, n)
			if d, most := time.Since(muted), tt.want-tt.want/3; d > most {
				t.Errorf("granted %v in between: lost %v after the last answer, want at most %v", tt.granted, d, most)
			}
		})
	}
}

func TestSessionTimeoutThatIsNoneIsRefused(t *testing.T) {
	for _, none := range []time.Duration{0, -time.Second} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s, zklock.WithDialContext(granting(s, []time.Duration{none, timeout, none, none, timeout})))
			n := p.acquire(t)
			s.Cut(p.session)
			awaitLoss(t, n)
			synctest.Wait() // the loss is told before the reason
			wantMention(t, p.Err(), "session timeout of "+none.String())
			wantErr(t, "Release", n.Release(), zklock.ErrLost)
			p.acquire(t).Release() // goes on with what is granted next
		})
	}
}

func TestReconnectRenewsTheLeaseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		time.Sleep(beat / 2)
		s.Cut(p.session)
		synctest.Wait() // connected again
		resumed := time.Now()
		mute(s, p, zktest.ToServer, zktest.ToClient)
		awaitLoss(t, n)
		if d := time.Since(resumed); d != lease {
			t.Errorf("lost %v after the handshake, want %v", d, lease)
		}
	})
}

// The server has heard of the session when the handshake was sent, and maybe not since.
func TestReconnectRenewsTheLeaseFromItsHandshake(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const late = 500 * time.Millisecond
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Reply && f.Op == zktest.OpConnect {
				return zktest.Delay(late)
			}
			return zktest.Pass
		})
		time.Sleep(beat / 2)
		s.Cut(p.session)
		resumed := time.Now()
		time.Sleep(late)
		synctest.Wait() // connected again
		mute(s, p, zktest.ToServer, zktest.ToClient)
		awaitLoss(t, n)
		if d := time.Since(resumed); d != lease {
			t.Errorf("lost %v after the handshake, want %v", d, lease)
		}
	})
}

func TestTryAcquireSaysThatTheLeaseIsToBeRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Op == zktest.OpSync {
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		time.Sleep(timeout)
		_, err := p.lock.TryAcquire(t.Context())
		wantMention(t, err, "the lease has run out and is yet to be renewed")
		wantEmpty(t, s)
		s.Intercept(nil)
		time.Sleep(timeout / 2)
		n, err := p.lock.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n.Release()
	})
}
