package zklock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

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

func TestAcquireWithoutAServerEndsAtItsDeadlineWithBothCauses(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		down(s)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := p.lock.Acquire(ctx)
		for _, cause := range []error{context.DeadlineExceeded, zk.ErrNoServer, syscall.ECONNREFUSED} {
			wantErr(t, "Acquire", err, cause)
		}
		if d := time.Since(begun); d != 10*time.Second {
			t.Errorf("returned after %v, want 10s", d)
		}
		wantErr(t, "client's Err", p.Err(), zk.ErrNoServer)
	})
}

// A server that answers and refuses is no outage, but a reason as well.
func TestAcquireEndsAtItsDeadlineWithTheLastRefusal(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == zktest.OpCreate && f.Stage == zktest.Request {
				return zktest.Error(zktest.CodeThrottled)
			}
			return zktest.Pass
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.lock.Acquire(ctx)
		if want := strconv.Itoa(int(zktest.CodeThrottled)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
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

func TestTryAcquireWithoutAServerFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		down(s)
		begun := time.Now()
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zk.ErrNoServer)
		if d := time.Since(begun); d != 0 {
			t.Errorf("returned after %v", d)
		}
	})
}

func TestAcquisitionsGoOnWhenTheServerIsBack(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 3 * timeout} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			n := start(t, s).acquire(t)
			queued, late := start(t, s), start(t, s)
			r := queued.queue(t.Context())
			down(s)
			l := late.queue(t.Context())
			time.Sleep(outage)
			s.Member(addr).Accept()
			if time.Sleep(5 * time.Second); outage < lease {
				if !r.waiting() || !l.waiting() {
					t.Fatal("granted while another holds")
				}
			}
			n.Release()
			for _, r := range []*request{r, l} {
				go func() {
					if <-r.done; r.err == nil {
						r.node.Release()
					}
				}()
			}
			time.Sleep(10 * time.Second)
			r.granted(t)
			l.granted(t)
			wantEmpty(t, s)
		})
	}
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
			if f.Stage == zktest.Event {
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

func TestLeaseThatEndedDuringADisconnectStaysLostAndItsNodeGoes(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		n := start(t, s).acquire(t)
		down(s)
		time.AfterFunc(lease+500*time.Millisecond, s.Member(addr).Accept) // the session is still alive
		awaitLoss(t, n)
		if !s.Exists(n.Path()) {
			t.Fatal("the server gave up before the loss")
		}
		next := start(t, s).acquire(t)
		if d := next.Token() - n.Token(); d <= 0 {
			t.Errorf("token grew by %d", d)
		}
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		next.Release()
		wantEmpty(t, s)
	})
}

func TestSingleServerIsReconnectedWithoutAPause(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		for range 5 {
			s.Cut(p.session)
			if synctest.Wait(); p.Err() != nil {
				t.Errorf("not back at once: %v", p.Err())
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// A server hangs up on a client that has seen a later transaction than itself, and the client library never forgets.
// That the tokens start low again is documented, since it concerns whoever remembers one.
func TestEnsembleThatLostItsDataIsJoinedAnewWithLowTokens(t *testing.T) {
	bubble(t, func(t *testing.T, old *zktest.Server) {
		var current atomic.Pointer[zktest.Server]
		current.Store(old)
		p := start(t, old, zklock.WithDialContext(func(ctx context.Context, network, address string) (net.Conn, error) {
			return current.Load().DialContext(ctx, network, address)
		}))
		for range 100 {
			p.acquire(t).Release()
		}
		n := p.acquire(t)
		wiped := zktest.Start(t)
		current.Store(wiped)
		old.CutAll()
		awaitLoss(t, n)
		again := p.acquire(t)
		if again.Token() >= n.Token() {
			t.Errorf("token of an ensemble that lost its data: got %d after %d, want a lower one", again.Token(), n.Token())
		}
		again.Release()
		wantEmpty(t, wiped)
	})
}

func TestMuteServerCostsOneHandshakeBound(t *testing.T) {
	const mute = "127.0.0.1:2182"
	for range 10 { // the library shuffles its servers
		bubble(t, func(t *testing.T, s *zktest.Server) {
			s.Member(mute).Freeze()
			begun := time.Now()
			c, err := zklock.Dial(t.Context(), mute+","+addr, zklock.WithSessionTimeout(timeout), zklock.WithDialContext(s.DialContext))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if d := time.Since(begun); d > timeout/6 {
				t.Errorf("a session after %v, want at most %v", d, timeout/6)
			}
		})
	}
}

func TestPeerThatIsNoZooKeeperIsNamedAndNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				go io.Copy(io.Discard, there)
				there.Write([]byte("SSH-2.0-OpenSSH_9.2p1\r\n"))
				there.Close()
			}()
			return here, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := zklock.Dial(ctx, addr, zklock.WithDialContext(dial))
		if wantErr(t, "Dial", err, zk.ErrNoServer); !strings.Contains(err.Error(), "not ZooKeeper's protocol?") {
			t.Errorf("got %v, want it to say what the peer is not", err)
		}
	})
}

func TestDialEndsWithItsContextWhateverTheDialerDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(cause) })
		begun := time.Now()
		_, err := zklock.Dial(ctx, addr, zklock.WithDialContext(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}))
		wantErr(t, "Dial", err, cause)
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("returned after %v", d)
		}
	})
}
