package zklock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
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
