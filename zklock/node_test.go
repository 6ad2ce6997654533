package zklock_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
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
			if c.Op == "delete" && c.Path == n.Path() {
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
		mute(s, p, zktest.Request, zktest.Reply)
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
		if f.Dir == zktest.Reply && f.Op == "multi" && f.NthOfSession >= nth {
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
		mute(s, p, zktest.Request, zktest.Reply)
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
			mute(s, p, zktest.Request, zktest.Reply)
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

// The server has heard of the session when the handshake was sent, and maybe not since.
func TestReconnectRenewsTheLeaseFromItsHandshake(t *testing.T) {
	cases := map[string]time.Duration{"answered at once": 0, "answered late": 500 * time.Millisecond}
	each(t, cases, func(t *testing.T, s *zktest.Server, late time.Duration) {
		p := start(t, s)
		n := p.acquire(t)
		meet(s, is("connect", zktest.Reply), zktest.Delay(late))
		time.Sleep(beat / 2)
		s.Cut(p.session)
		resumed := time.Now()
		time.Sleep(late)
		synctest.Wait() // connected again
		mute(s, p, zktest.Request, zktest.Reply)
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
		meet(s, is("sync", zktest.Request), zktest.Throttled)
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

func TestHeartbeatKeepsThePromisedPaceWhileHolding(t *testing.T) {
	for _, timeout := range []time.Duration{6 * time.Second, 30 * time.Second} {
		want := timeout / 8
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s, zklock.WithSessionTimeout(timeout))
			n := p.acquire(t)
			var mu sync.Mutex
			last, gap := time.Now(), time.Duration(0)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				mu.Lock()
				defer mu.Unlock()
				if f.Dir == zktest.Request {
					last, gap = time.Now(), max(gap, time.Since(last))
				}
				return zktest.Pass
			})
			time.Sleep(10 * timeout)
			n.Release()
			mu.Lock()
			defer mu.Unlock()
			if gap > want || gap == 0 {
				t.Errorf("T %v: silent for %v, want at most %v", timeout, gap, want)
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
			p.acquireAt(t, path)
		}
		awaitWatch()
		tr := record(s)
		time.Sleep(10*beat + beat/2)
		if got := tr.take(); tr.beats != 10 || len(got) != 10 || got[0] != "multi" {
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
		n := p.acquireAt(t, "/locks/y")
		awaitWatch()
		remove(t, conn, gone.Path())
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
			case f.Dir != zktest.Request:
			case f.Op == "sync":
				syncs.Add(1)
				return zktest.Throttled
			case f.Op == "multi":
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
			if f.Dir == zktest.Reply && heartbeat(f) && f.Op != "ping" {
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
		protect(t, raw(t, s), n.Path(), zk.PermDelete)
		time.Sleep(2 * beat)
		wantErr(t, "the loss", context.Cause(n.Context()), zk.ErrNoAuth)
	})
}

// Only what the server sends gets lost. The session could delete its node at once; and each handshake that would resume
// it keeps the node in the queue.
func TestLostNodeLeavesItsOwnerTheMarginToStop(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := start(t, s).queue(t.Context())
		mute(s, p, zktest.Reply)
		awaitLoss(t, n)
		lost := time.Now()
		next.await(t)
		if d := time.Since(lost); d < timeout-lease {
			t.Errorf("the next owner came %v after the loss, want at least the margin %v", d, timeout-lease)
		} else if d > 3*timeout {
			t.Errorf("the next owner came %v after the loss, want a session that is not resumed to end", d)
		}
	})
}

// lapse makes the lease of n run out while the connection stands.
func lapse(t *testing.T, s *zktest.Server, p process, n *zklock.Node) {
	t.Helper()
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Session == p.session && f.Dir == zktest.Request && f.Op == "multi" {
			return zktest.Throttled
		}
		return zktest.Pass
	})
	awaitLoss(t, n)
	s.Intercept(nil)
}

func TestLostNodeGoesWhenItsMarginIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		gone := deleted(s, n)
		lapse(t, s, p, n)
		lost := time.Now()
		if d := (<-gone).Sub(lost); d != timeout-lease {
			t.Errorf("gone %v after the loss, want the margin %v", d, timeout-lease)
		}
	})
}

func TestRequeueOfALostNodeDeletesItBeforeTheNewOneIsCreated(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		lapse(t, s, p, n)
		tr, begun := record(s), time.Now()
		next, err := n.Requeue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantWithin(t, 0, "Requeue", begun)
		if ops := tr.take(); len(ops) < 2 || ops[0] != "delete" || ops[1] != "create" {
			t.Errorf("requests: %v, want the delete before the create", ops)
		}
		next.Release()
		wantEmpty(t, s)
	})
}

func TestTimeoutThatMayBeTooShortForTheTickIsToldAtWarn(t *testing.T) {
	for _, tt := range []struct {
		asked, least time.Duration
		want         bool
	}{
		{15 * time.Second, 4 * time.Second, false},
		{8 * time.Second, 4 * time.Second, false},
		{7 * time.Second, 4 * time.Second, true},   // four ticks of 2 s are more
		{10 * time.Second, 12 * time.Second, true}, // raised to two ticks, which must be of 6 s
	} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t, zktest.Config{MinSessionTimeout: tt.least})
			p, log := startLogged(t, s, zklock.WithSessionTimeout(tt.asked))
			p.Close()
			if got := len(log.Lines(slog.LevelWarn, "tick")) > 0; got != tt.want {
				t.Errorf("asked for %v, granted at least %v: warned %t, log %q", tt.asked, tt.least, got, log)
			}
		})
	}
}

// The holder's budget begins when the look was sent that showed the contender, and not a round trip later.
func TestContestedSinceTheLookWasSent(t *testing.T) { // I11
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 40 * time.Millisecond
		s := zktest.Start(t, zktest.Config{Latency: roundTrip / 2})
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		other.queue(t.Context())
		time.Sleep(time.Second)
		began := time.Now()
		<-n.Contested()
		if took := time.Since(began); took != roundTrip || n.ContestedFor() != roundTrip {
			t.Errorf("contested for %v after a look of %v, want both to be %v", n.ContestedFor(), took, roundTrip)
		}
	})
}

// The budget is for the time of the hold, though the contender was seen long before.
func TestContestedNotBeforeTheGrant(t *testing.T) { // I11
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		next := start(t, s).queue(t.Context())
		start(t, s).queue(t.Context())
		time.Sleep(2 * timeout) // the one in the middle has looked again
		n.Release()
		if got := next.granted(t).ContestedFor(); got > time.Millisecond || got == 0 {
			t.Errorf("contested for %v at the grant, want the least there is", got)
		}
	})
}

// contested reports whether n is known to be, once nothing moves any more.
func contested(n interface{ Contested() <-chan struct{} }) bool {
	c := n.Contested() // which may begin to look
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A look that fails is repeated soon, and sets the watch then.
func TestContenderIsNoticedAtOnceAlthoughTheFirstLookFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, other := start(t, s).acquire(t), start(t, s)
		meetOnce(s, is("getChildren2", zktest.Request), zktest.Throttled)
		contested(n)
		if time.Sleep(timeout / 3); contested(n) {
			t.Fatal("contested without a contender")
		}
		other.queue(t.Context())
		if !contested(n) {
			t.Error("not noticed at once")
		}
	})
}

// By then a look that failed would be repeated only once in a second.
func TestContestedIsLookedForAtOnceWhenTheConnectionIsBack(t *testing.T) { // I11
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		s.Member(addr).Refuse()
		s.Cut(p.Library().SessionID())
		synctest.Wait()
		n.Contested() // whose look fails
		time.Sleep(timeout / 3)
		other.queue(t.Context())
		s.Member(addr).Accept()
		for p.Err() != nil {
			time.Sleep(time.Millisecond)
		}
		if synctest.Wait(); !closed(n.Contested()) {
			t.Error("not noticed at once")
		}
	})
}

// Each request for a watch is one more channel that the library keeps until the watch fires.
func TestLooksAtTheQueueShareOneWatch(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var looks, watches atomic.Int32
		n := start(t, s, zklock.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.DialContext(ctx, network, address)
			return tap{conn, func(frame []byte) {
				d := wire.Decoder{Rest: wire.Body(frame)}
				if h := d.RequestHeader(); h.Op == wire.OpGetChildren || h.Op == wire.OpGetChildren2 {
					looks.Add(1)
					if d.Buffer(); d.Bool() { // path, watch
						watches.Add(1)
					}
				}
			}}, err
		})).acquire(t)
		n.Contested()
		time.Sleep(10 * timeout)
		if looks.Load() < 5 || watches.Load() != 1 {
			t.Errorf("%d looks asked for %d watches, want 1", looks.Load(), watches.Load())
		}
	})
}

// A tap shows what a client writes.
type tap struct {
	net.Conn
	show func(frame []byte)
}

func (c tap) Write(frame []byte) (int, error) {
	c.show(frame)
	return c.Conn.Write(frame)
}

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

func TestI7LossComesFirstInAPartitionBetweenServers(t *testing.T) {
	divided(t, "follower cut off", func(_ *testing.T, m *zktest.Member, _ *zklock.Node) { m.Isolate() })
	divided(t, "leader deposed", func(_ *testing.T, m *zktest.Member, _ *zklock.Node) { m.Depose() })
	// The link stalls, stands for a moment in which n requests get through and come back, and is cut.
	for n := range 4 {
		for _, stall := range []time.Duration{tick / 2, tick, 2 * tick, 3 * tick, 4 * tick} {
			divided(t, "flapping link", func(_ *testing.T, m *zktest.Member, node *zklock.Node) {
				m.Isolate()
				time.Sleep(stall)
				go node.Multi(context.Background()) // ends with the client; a write that is sent late, behind what waits
				synctest.Wait()
				m.Glimpse(n + 1)
			})
		}
	}
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
				if c.Op == "create" {
					created++
				}
			}
		})
		var cut atomic.Bool
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "create" && f.Dir == zktest.Reply && !cut.Swap(true) {
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
