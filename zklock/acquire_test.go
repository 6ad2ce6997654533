package zklock_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/wire"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestReleaseIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "event" { // it says that the node is gone, too
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := n.Release(); err != nil || p.Reaping() > 0 {
			t.Errorf("Release: %v, with %d nodes still to be deleted", err, p.Reaping())
		}
		tr := record(s)
		time.Sleep(timeout)
		if ops := tr.take(); len(ops) > 0 {
			t.Errorf("sent after the delete was answered: %v", ops)
		}
	})
}

func TestTryAcquireThatMayNotListTheQueueAgainLeavesNoNode(t *testing.T) { // I5
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t).Release()
		lists := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "getChildren2" && f.Dir == zktest.Request {
				if lists++; lists == 2 {
					return zktest.Error(zk.ErrNoAuth)
				}
			}
			return zktest.Pass
		})
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoAuth)
		wantEmpty(t, s)
	})
}

func TestReleaseTwiceSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		if err := n.Release(); err != nil {
			t.Fatal(err)
		}
		tr := record(s)
		wantErr(t, "second Release", n.Release(), zklock.ErrReleased)
		_, err := n.Requeue(t.Context())
		wantErr(t, "Requeue after Release", err, zklock.ErrReleased)
		if got := tr.take(); len(got) > 0 {
			t.Errorf("sent: %v", got)
		}
	})
}

func TestTokenIsTheCzxidAndGrowsAcrossDeletionOfTheParent(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, processes := raw(t, s), []process{start(t, s), start(t, s)}
		var last int64
		for i := range 4 {
			n := processes[i%2].acquire(t)
			if _, stat, _ := s.Get(n.Path()); n.Token() != stat.Czxid {
				t.Errorf("token: got %d, want czxid %d", n.Token(), stat.Czxid)
			}
			if n.Token() <= last {
				t.Errorf("token %d after %d", n.Token(), last)
			}
			last = n.Token()
			n.Release()
			if err := conn.Delete(path, -1); err != nil { // sequence numbers start again
				t.Fatal(err)
			}
		}
	})
}

func TestCancelAtTheMomentOfTheGrantNeverStrandsTheNode(t *testing.T) {
	grants := 0
	for i := range 80 {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n := start(t, s).acquire(t)
			p := start(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			r := p.queue(ctx)
			go n.Release()
			go func() {
				for range i % 16 { // the release goes through about as many hands
					runtime.Gosched()
				}
				cancel()
			}()
			if r.waiting() {
				t.Fatal("neither granted nor cancelled")
			}
			if r.err == nil {
				grants++
				if err := r.node.Release(); err != nil {
					t.Errorf("Release of a grant: %v", err)
				}
			} else {
				wantErr(t, "Acquire", r.err, context.Canceled)
			}
			<-n.Released()
			wantEmpty(t, s)
			p.acquire(t).Release()
		})
	}
	t.Logf("%d of 80 were granted", grants)
}

// The one that the next caller waits for is remembered as long as its call is stuck.
func TestStuckCallThatHasEndedIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		if n := p.Abandoned(); n != 1 {
			t.Errorf("while the call is stuck: %d remembered, want 1", n)
		}
		s.Unfreeze()
		synctest.Wait()
		if n := p.Abandoned(); n != 0 {
			t.Errorf("after the call: %d remembered, want none", n)
		}
		wantEmpty(t, s)
	})
}

// Nothing is needed for that, and nobody ahead is watched.
func TestNodeOfACallerWhoHasLeftIsDeletedAtOnceAndDoesNotQueue(t *testing.T) {
	for name, taken := range map[string]bool{"nobody ahead": false, "somebody ahead": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				n, p := start(t, s).acquire(t), start(t, s) // which makes the parents
				if !taken {
					n.Release()
				}
				tr := record(s)
				s.Freeze()
				ctx, cancel := context.WithCancel(t.Context())
				r := p.queue(ctx)
				cancel()
				wantErr(t, "Acquire", r.failed(t), context.Canceled)
				s.Unfreeze()
				if got, want := tr.take(), []string{"create", "getChildren2", "delete"}; !slices.Equal(got, want) {
					t.Errorf("sent: %v, want %v", got, want)
				}
				n.Release()
			})
		})
	}
}

// I10: who is told of events is who still waits, holds or looks.
func TestNobodyListensWhoHasLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, other := start(t, s), start(t, s)
		n := p.acquire(t)
		contested(n)
		next := other.queue(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		last := other.queue(ctx)
		cancel()
		last.failed(t)
		n.Release()
		next.granted(t).Release()
		p.acquire(t).Release()
		synctest.Wait()
		for _, c := range []process{p, other} {
			if listeners := c.Listeners(); listeners > 0 {
				t.Errorf("%d listeners although nothing is held or waited for", listeners)
			}
		}
	})
}

// The one ahead stays, and so does the watch on it; but nobody is told.
func TestNobodyListensWhoHasLeftThoseAhead(t *testing.T) { // I10
	bubble(t, func(t *testing.T, s *zktest.Server) {
		holder, other := start(t, s), start(t, s)
		n := holder.acquire(t)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			r := other.queue(ctx)
			cancel()
			r.failed(t)
		}
		if synctest.Wait(); other.Listeners() > 0 {
			t.Errorf("%d listeners although nobody waits", other.Listeners())
		}
		n.Release()
	})
}

func TestWaitBehindAnotherProcessEndsWithTheContextsCauseAlone(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := start(t, s).queue(ctx)
		time.Sleep(time.Second)
		err := r.failed(t)
		if want := "zklock: acquire " + path + ": " + context.DeadlineExceeded.Error(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		n.Release()
	})
}

// Else whoever queues next may do so before the delete has left.
func TestRequeueThatDoesNotBeginReturnsWhenTheNodeIsGone(t *testing.T) { // I3
	for name, number := range map[string]int32{"ended context": 0, "worn path": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				p.acquire(t).Release()
				s.SetSequence(path, number)
				n := p.acquire(t)
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Dir == zktest.Request && (f.Op == "delete" || f.First == "delete") {
						return zktest.Delay(time.Second)
					}
					return zktest.Pass
				})
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_, err := n.Requeue(ctx)
				wantErr(t, "Requeue", err, context.Canceled)
				if left := s.Children(path); len(left) > 0 {
					t.Errorf("returned before the node was gone: %v", left)
				}
			})
		})
	}
}

func TestRequeueOfALostLockQueuesAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		if err := raw(t, s).Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		r := submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
		if next := r.granted(t); next.Token() <= n.Token() {
			t.Errorf("token %d after %d", next.Token(), n.Token())
		}
		wantErr(t, "AwaitRelease of the lost one", n.AwaitRelease(), zklock.ErrLost)
	})
}

// Both watch the same path, for which the client has one watch.
func TestDeletedNodeIsToldToItsOwnerAndToWhoWaitsBehindItInOneProcess(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		n := p.acquire(t)
		next := p.queue(t.Context())
		awaitWatch()
		begun := time.Now()
		if err := raw(t, s).Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		next.await(t)
		next.granted(t).Release()
		if d := time.Since(begun); d != 0 {
			t.Errorf("noticed after %v", d)
		}
	})
}

func TestNodeWrittenToAndThenDeletedByAnotherIsALossAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		awaitWatch()
		begun := time.Now()
		if _, err := conn.Set(n.Path(), nil, -1); err != nil { // uses the watch up
			t.Fatal(err)
		}
		synctest.Wait()
		if err := n.Err(); err != nil {
			t.Fatalf("lost by a write: %v", err)
		}
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		if d := time.Since(begun); d != 0 {
			t.Errorf("noticed after %v", d)
		}
	})
}

func TestNodeDeletedByAnotherWhileItsEventIsLostIsNoticedByTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "event" {
				return zktest.Drop
			}
			return zktest.Pass
		})
		conn := raw(t, s)
		begun := time.Now()
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		awaitLoss(t, n)
		if d := time.Since(begun); d > beat {
			t.Errorf("noticed after %v, want at most %v", d, beat)
		}
	})
}

// Throttled, say: the connection stands, so there is no other occasion to look.
func TestLookThatIsRefusedIsRepeated(t *testing.T) { // I7
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n, conn := start(t, s).acquire(t), raw(t, s)
		refused := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "getData" && f.Dir == zktest.Request && !refused {
				refused = true
				return zktest.Throttled
			}
			return zktest.Pass
		})
		awaitWatch()
		if awaitWatch(); !refused {
			t.Fatal("nobody has looked")
		}
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); n.Err() == nil {
			t.Error("the deletion is not heard of")
		}
	})
}

// What happens between two lines that belong together: an attached client tells when it is between them. No time may pass
// there, because it has a mutex.

// The connection may break after the look at the queue. A create would then wait for another one.
func TestTryAcquireThatLosesTheConnectionBeforeItsCreateFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		p.AfterReadingID(sync.OnceFunc(func() {
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Op == "connect" {
					return zktest.Cut
				}
				return zktest.Pass
			})
			s.CutAll()
			for p.Err() == nil {
				runtime.Gosched()
			}
		}))
		begun := time.Now()
		n, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoServer)
		if d := time.Since(begun); n != nil || d > 10*time.Millisecond {
			t.Errorf("got %v after %v", n, d)
		}
	})
}

// A create may be executed under a newer session than the one it was asked for. Who looks at the node before that is
// settled, as when one of two znodes is not read at once, takes it for somebody else's.
func TestNodeOfANewerSessionIsOursThoughSomebodyWritesToItAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		other := raw(t, s)
		// Else there would be a second create, under the newer session.
		put(t, other, 0, "/locks", path)
		conn, events, err := zk.Connect(slices.Repeat([]string{addr}, 9), timeout, // it pauses after each round
			zk.WithDialer(s.DialTimeout), zk.WithLogger(silent{}), zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			conn.Close()
			for range events { // closed as the last act of the library
			}
		}()
		synctest.Wait()
		p := attachTo(t, conn, zklock.WithKazoo())
		p.AfterReadingID(sync.OnceFunc(func() {
			old := conn.SessionID()
			s.Expire(old)
			for conn.SessionID() == old || conn.State() != zk.StateHasSession {
				runtime.Gosched()
			}
		}))
		creates, written := 0, false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Dir != zktest.Request:
			case f.Op == "multi" && f.First == "create":
				creates++
			case f.Op == "getData" && strings.Contains(f.Path, "-lock-") && !written:
				written = true
				time.AfterFunc(time.Millisecond, func() {
					if _, err := other.Set(pairs(t, s)[0][1], []byte("x"), -1); err != nil {
						t.Error(err)
					}
				})
				return zktest.Throttled
			}
			return zktest.Pass
		})
		n := p.acquire(t)
		synctest.Wait()
		if err := n.Err(); err != nil || creates != 1 {
			t.Errorf("Err: %v; %d creates, want one", err, creates)
		}
	})
}

// down makes the server unreachable, as a dead one is: refusing.
func down(s *zktest.Server) {
	s.Member(addr).Refuse()
	s.CutAll()
	synctest.Wait()
}

func TestDialWithoutAServerEndsAtItsDeadlineWithBothCauses(t *testing.T) {
	for _, opts := range [][]zklock.Option{nil, {zklock.WithAuth("digest", []byte("u:p"))}} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			down(s)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begun := time.Now()
			_, err := zklock.Dial(ctx, addr, append(opts, zklock.WithDialContext(s.DialContext))...)
			for _, cause := range []error{context.DeadlineExceeded, zk.ErrNoServer, syscall.ECONNREFUSED} {
				wantErr(t, "Dial", err, cause)
			}
			if d := time.Since(begun); d < 10*time.Second || d > 11*time.Second {
				t.Errorf("returned after %v, want 10s", d)
			}
		})
	}
}

func TestDialWaitsForAServerToCome(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		down(s)
		time.AfterFunc(20*time.Second, s.Member(addr).Accept)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := zklock.Dial(ctx, addr, zklock.WithDialContext(s.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}

// A server that answers and refuses is no outage, but a reason as well.
func TestAcquireEndsAtItsDeadlineWithTheLastRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "create" && f.Dir == zktest.Request {
				return zktest.Throttled
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		if want := strconv.Itoa(int(wire.CodeThrottled)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want the deadline and the code %s", err, want)
		}
	})
}

// The connection may break while the attempt waits for a stuck call of an earlier one.
func TestTryAcquireBehindAStuckCallFailsWhenTheConnectionBreaks(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		try := submit(func() (*zklock.Node, error) { return p.lock.TryAcquire(t.Context()) })
		if !try.waiting() {
			t.Fatalf("got %v, %v; want it to wait for the stuck call", try.node, try.err)
		}
		down(s)
		wantErr(t, "TryAcquire", try.failed(t), zk.ErrNoServer)
	})
}

func TestShortDisconnectSuspendsAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		down(s)
		if !n.Suspended() || n.Err() != nil {
			t.Errorf("while disconnected: suspended %t, Err %v; want true, nil", n.Suspended(), n.Err())
		}
		time.Sleep(lease - beat - time.Second)
		s.Member(addr).Accept()
		time.Sleep(beat + beat/2) // the library pauses for a second after each round of its list
		if n.Suspended() || n.Err() != nil {
			t.Errorf("connected again: suspended %t, Err %v; want false, nil", n.Suspended(), n.Err())
		}
		time.Sleep(time.Minute)
		if err := n.Release(); err != nil {
			t.Error(err)
		}
	})
}

func TestReturnOfTheConnectionIsALookAtTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		n := p.acquire(t)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "event" {
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := conn.Delete(n.Path(), -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := n.Err(); err != nil {
			t.Fatalf("noticed before the return: %v", err)
		}
		s.Cut(p.session)
		synctest.Wait()
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
	})
}
