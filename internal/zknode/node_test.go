package zknode_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func mute(s *zktest.Server, p process, directions ...zktest.Direction) {
	for _, d := range directions {
		s.Mute(p.session, d)
	}
}

// The function deleted returns a channel that receives the time at which the server deletes the node n.
func deleted(s *zktest.Server, n *zknode.Node) <-chan time.Time {
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
		p := start(t, s, zknode.WithLeaseMargin(margin))
		n := p.acquire(t)
		mute(s, p, zktest.Request, zktest.Reply)
		muted := time.Now()
		awaitLoss(t, n)
		need.Equal(t, "lost after", time.Since(muted), timeout-margin)
	})
}

func TestLeaseRunsFromTheRequestThatTheServerIsProvenToHaveHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		const delay = 600 * time.Millisecond
		p := start(t, s)
		n := p.acquire(t)
		begun := time.Now()
		meet(s, func(f *zktest.Frame) bool { return f.Dir == zktest.Reply && f.Op == "multi" && f.NthOfSession >= 2 }, zktest.Delay(delay))
		time.Sleep(2*beat + delay)
		synctest.Wait() // the second write shows that the sync of the first heartbeat was answered
		mute(s, p, zktest.Request, zktest.Reply)
		awaitLoss(t, n)
		need.Equal(t, "lost after", time.Since(begun), beat+lease)
	})
}

// granting returns a dial function. On the nth connection, it makes the server seem to grant the nth of these timeouts.
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
	const at = 8 // offset of the timeout, after length and version
	for i := range n {
		if k := g.read + i - at; 0 <= k && k < 4 {
			p[i] = byte(g.timeout.Milliseconds() >> (8 * (3 - k)))
		}
	}
	g.read += n
	return n, err
}

func TestSessionTimeoutThatIsNoneIsRefused(t *testing.T) {
	for _, none := range []time.Duration{0, -time.Second} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			p := start(t, s, zknode.WithDialContext(granting(s, []time.Duration{none, timeout, none, none, timeout})))
			n := p.acquire(t)
			s.Cut(p.session)
			awaitLoss(t, n)
			synctest.Wait() // the reason becomes known after the loss
			wantMention(t, p.Err(), "session timeout of "+none.String())
			wantErr(t, "Release", n.Release(), second.ErrLost)
			p.acquire(t).Release() // the client continues with the next timeout
		})
	}
}

// When the client sends the handshake, the server has certainly received an earlier message of the session. It may have received nothing
// since. The lease therefore counts from the handshake.
func TestReconnectRenewsTheLeaseFromItsHandshake(t *testing.T) {
	type resumption struct{ late, granted, want time.Duration }
	each(t, map[string]resumption{
		"answered at once":      {granted: timeout, want: lease},
		"answered late":         {late: 500 * time.Millisecond, granted: timeout, want: lease},
		"for a shorter timeout": {granted: timeout / 2, want: lease / 2},
		"for a longer timeout":  {granted: timeout * 2, want: lease}, // the node may still follow the timeout under which it was created
	}, func(t *testing.T, s *zktest.Server, c resumption) {
		p := start(t, s, zknode.WithDialContext(granting(s, []time.Duration{timeout, c.granted})))
		n := p.acquire(t)
		meet(s, is("connect", zktest.Reply), zktest.Delay(c.late))
		time.Sleep(beat / 2)
		s.Cut(p.session)
		resumed := time.Now()
		time.Sleep(c.late)
		synctest.Wait() // until it is connected again
		mute(s, p, zktest.Request, zktest.Reply)
		awaitLoss(t, n)
		need.Equal(t, "lost after the handshake by", time.Since(resumed), c.want)
		need.Equal(t, "the margin", p.LeaseMargin(), c.want/2)
	})
}

func TestTryAcquireSaysThatTheLeaseIsToBeRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		meet(s, is("sync", zktest.Request), zktest.Throttled)
		time.Sleep(timeout)
		err := need.ErrOf(p.lock.TryAcquire(t.Context()))
		wantErr(t, "TryAcquire", err, zk.ErrNoServer)
		wantMention(t, err, "the lease has ended and is not yet renewed")
		locks := zknode.Tier(p.Client)
		claim, semaphore := need.Get(locks.Claim(path, second.Options{}))(t), need.Get(locks.Semaphore(limits, 2, second.Options{}))(t)
		wantErr(t, "a try for the lock", need.ErrOf(claim.TryAcquire(t.Context())), second.ErrUnavailable)
		wantErr(t, "a try for permits", need.ErrOf(semaphore.TryAcquire(t.Context(), 1)), second.ErrUnavailable)
		wantEmpty(t, s)
		s.Intercept(nil)
		time.Sleep(timeout / 2)
		n := need.Get(p.lock.TryAcquire(t.Context()))(t)
		n.Release()
	})
}

// An idle process sends requests, so that its next acquisition takes one round trip. None of them is a write.
func TestNothingHeldMeansNoWrites(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		tr := record(s)
		time.Sleep(time.Minute)
		need.Empty(t, "sent while idle", tr.take())
		s.Intercept(nil) // from here on nothing is counted
		need.Between(t, "syncs in a minute", tr.beats, 1, int(time.Minute/beat))
		time.Sleep(time.Hour)
		if n := p.queue(t.Context()).granted(t); n.Err() != nil { // no time has passed since the grant
			t.Errorf("granted with an ended lease: %v", n.Err())
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
		need.List(t, "sent for ten beats", tr.take(), slices.Repeat([]string{"multi"}, 10)...)
		need.Equal(t, "syncs for ten beats", tr.beats, 10)
	})
}

// If the node of one lock is deleted, its owner may be slow to release it. The other locks of the process must keep their lease meanwhile.
func TestNodeThatIsGoneDoesNotStarveTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		gone := p.acquire(t)
		n := p.acquireAt(t, "/locks/y")
		awaitWatch()
		remove(t, conn, gone.Path())
		synctest.Wait()
		wantErr(t, "Err of the deleted one", gone.Err(), second.ErrLost)
		wantKept(t, n, 20*timeout)
	})
}

// wantKept fails the test if the node n is lost before the time d is over.
func wantKept(t *testing.T, n *zknode.Node, d time.Duration) {
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
		p := start(t, s, zknode.WithSessionTimeout(15*time.Second), zknode.WithDialContext(granting(s, []time.Duration{granted})))
		wantKept(t, p.acquire(t), 20*granted)
	})
}

// A write after a failed sync would prove nothing new about the lease. Therefore it is not sent.
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
		need.AtLeast(t, "syncs", syncs.Load(), 1)
		need.Equal(t, "writes", writes.Load(), 0)
	})
}

func TestSlowAnswersTakeNoneOfThePace(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		meet(s, func(f *zktest.Frame) bool { return f.Dir == zktest.Reply && heartbeat(f) && f.Op != "ping" }, zktest.Delay(timeout/12))
		wantKept(t, n, 10*timeout)
	})
}

// If a holder may not read its node any more, heartbeats prove nothing. The next heartbeat tells the holder that its lock is lost, before
// the lease ends.
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

// Only messages from the server are lost, so that the server still gets requests. The lost node must stay in the queue until the margin is
// over, because its owner may still be working. Each handshake that tries to resume the session keeps it there.
func TestLostNodeLeavesItsOwnerTheMarginToStop(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := start(t, s).queue(t.Context())
		mute(s, p, zktest.Reply)
		awaitLoss(t, n)
		lost := time.Now()
		next.await(t)
		need.AtLeast(t, "the next owner came after the loss, by the margin", time.Since(lost), timeout-lease)
		need.AtMost(t, "the next owner came after a session that is not resumed", time.Since(lost), 3*timeout)
	})
}

// The function lapse makes the lease of the node n end while the connection stays up.
func lapse(t *testing.T, s *zktest.Server, p process, n *zknode.Node) {
	t.Helper()
	meet(s, func(f *zktest.Frame) bool {
		return f.Session == p.session && f.Dir == zktest.Request && f.Op == "multi"
	}, zktest.Throttled)
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
		need.Equal(t, "gone after the loss by", (<-gone).Sub(lost), timeout-lease)
	})
}

func TestRequeueOfALostNodeDeletesItBeforeTheNewOneIsCreated(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		lapse(t, s, p, n)
		tr, begun := record(s), time.Now()
		next := need.Get(n.Requeue(t.Context()))(t)
		wantWithin(t, 0, "Requeue", begun)
		ops := tr.take()
		need.List(t, "the first requests", ops[:min(2, len(ops))], "delete", "create")
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
		{7 * time.Second, 4 * time.Second, true},   // four ticks of 2 s are longer than that
		{10 * time.Second, 12 * time.Second, true}, // the server raises the timeout to two of its ticks, so a tick must be 6 s
	} {
		synctest.Test(t, func(t *testing.T) {
			s := zktest.Start(t, zktest.Config{MinSessionTimeout: tt.least})
			p, log := startLogged(t, s, zknode.WithSessionTimeout(tt.asked))
			p.Close()
			warned := len(log.Lines(slog.LevelWarn, "tick")) > 0
			need.Equal(t, fmt.Sprintf("asked for %v, granted at least %v: warned, in %q", tt.asked, tt.least, log), warned, tt.want)
		})
	}
}

// The budget of a holder begins when it sends the request that finds the contender, and not with the answer.
func TestContendedSinceTheLookWasSent(t *testing.T) { // I11
	synctest.Test(t, func(t *testing.T) {
		const roundTrip = 40 * time.Millisecond
		s := zktest.Start(t, zktest.Config{Latency: roundTrip / 2})
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		other.queue(t.Context())
		time.Sleep(time.Second)
		began := time.Now()
		<-n.Contended()
		need.Equal(t, "the look took", time.Since(began), roundTrip)
		need.Equal(t, "contended for", n.ContendedFor(), roundTrip)
	})
}

// The budget never begins before the hold, even if the contender was seen long before.
func TestContendedNotBeforeTheGrant(t *testing.T) { // I11
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		next := start(t, s).queue(t.Context())
		start(t, s).queue(t.Context())
		time.Sleep(2 * timeout) // by then, the contender in the middle has read the queue again
		n.Release()
		got := next.granted(t)
		need.Between(t, "contended, at the grant, for", got.ContendedFor(), 1, time.Millisecond)
	})
}

// The function contended waits until the bubble is idle, and reports whether n is known to be contended.
func contended(n interface{ Contended() <-chan struct{} }) bool {
	c := n.Contended() // this call may start to read the queue
	synctest.Wait()
	return closed(c)
}

// If the first read of the queue fails, it is repeated soon, and sets the watch.
func TestContenderIsNoticedAtOnceAlthoughTheFirstLookFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, other := start(t, s).acquire(t), start(t, s)
		meetOnce(s, is("getChildren2", zktest.Request), zktest.Throttled)
		contended(n)
		time.Sleep(timeout / 3)
		need.That(t, "contended without a contender", !contended(n))
		other.queue(t.Context())
		need.That(t, "not noticed at once", contended(n))
	})
}

// When the connection is back, the client reads the queue at once. Otherwise a failed read would be repeated only once a second.
func TestContendedIsLookedForAtOnceWhenTheConnectionIsBack(t *testing.T) { // I11
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		s.Member(addr).Refuse()
		s.Cut(p.Library().SessionID())
		synctest.Wait()
		n.Contended() // the read that it begins fails
		time.Sleep(timeout / 3)
		other.queue(t.Context())
		s.Member(addr).Accept()
		for p.Err() != nil {
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		need.That(t, "not noticed at once", closed(n.Contended()))
	})
}

// A tap is a connection that passes each frame that the client writes to a function.
type tap struct {
	net.Conn
	show func(frame []byte)
}

func (c tap) Write(frame []byte) (int, error) {
	c.show(frame)
	return c.Conn.Write(frame)
}

// A deposed leader may answer a sync with old data. A node that is missing there may still exist, and must not be created again.
func TestAbsenceIsNotBelievedOfADeposedLeader(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var server atomic.Value
		const old, present = "127.0.0.2:2181", addr
		server.Store(present)
		p := start(t, s, zknode.WithDialContext(func(ctx context.Context, network, _ string) (net.Conn, error) {
			return s.DialContext(ctx, network, server.Load().(string))
		}))
		p.acquire(t).Release() // now the path exists
		s.Member(old).Depose()
		created := 0
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				if c.Op == "create" {
					created++
				}
			}
		})
		strike(s, 1, is("create", zktest.Reply), func(*zktest.Frame) zktest.Action {
			server.Store(old)
			return zktest.Cut
		})
		r := p.queue(t.Context())
		time.Sleep(2 * time.Second)
		s.Member(old).Rejoin()
		r.await(t)
		r.granted(t).Release()
		need.Equal(t, "nodes that were created", created, 1)
	})
}
