package zklock_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestAttachedLockIsLostWithTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		s.Expire(p.session)
		awaitLoss(t, n)
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		if now := conn.SessionID(); now == p.session {
			t.Errorf("session after the loss: still %#x", now)
		}
		wantErr(t, "Release", p.acquire(t).Release(), nil)
		wantEmpty(t, s)
	})
}

// undead makes the client believe that its session has expired, though it lives on.
func undead(t *testing.T, s *zktest.Server, p process, conn *zk.Conn) {
	t.Helper()
	s.Intercept(func(f *zktest.Frame) zktest.Action {
		if f.Op == zktest.OpConnect && f.Session == p.session && f.Stage == zktest.Request {
			return zktest.Expired
		}
		return zktest.Pass
	})
	s.Cut(p.session)
	for end := time.Now().Add(time.Hour); conn.SessionID() == p.session; {
		if time.Now().After(end) {
			t.Fatal("the session never changed")
		}
		<-time.After(time.Millisecond) // virtual
	}
}

// Err needs no word of the server: the id of the session is enough.
func TestAttachedLockIsLostWhenTheSessionIdHasChanged(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		undead(t, s, p, conn)
		wantErr(t, "Err", n.Err(), zklock.ErrLost)
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
	})
}

// Who does not ask is told when the client comes to use the new session.
func TestAttachedLossIsToldByTheNextAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		undead(t, s, p, conn)
		other, err := lockAt(t, p.Client, "/locks/y").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-n.Lost():
		default:
			t.Error("Lost is open under a session that was given up")
		}
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		wantErr(t, "Release", other.Release(), nil)
	})
}

// A goroutine may be held up for any time after it has read the id.
func TestAttachedSessionIsNotReplacedByAnOlderOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		var reads atomic.Int32
		reached, goOn := make(chan struct{}), make(chan struct{})
		p.AfterReadingID(func() {
			if reads.Add(1) == 1 {
				close(reached)
				<-goOn
			}
		})
		var late sync.WaitGroup
		late.Go(p.LookForSession)
		<-reached
		undead(t, s, p, conn)
		for conn.State() != zk.StateHasSession {
			<-time.After(time.Millisecond) // virtual
		}
		acquired := make(chan *zklock.Node, 1)
		go func() { acquired <- p.acquire(t) }()
		for range 100_000 { // it may have to wait for the other one
			if runtime.Gosched(); len(acquired) > 0 {
				break
			}
		}
		close(goOn)
		late.Wait()
		wantErr(t, "Release", (<-acquired).Release(), nil)
	})
}

func TestAttachedLockIsLostWithItsNode(t *testing.T) {
	for name, before := range map[string]func(*zk.Conn, string) error{
		"deleted": func(*zk.Conn, string) error { return nil },
		"written to, then deleted": func(other *zk.Conn, node string) error {
			_, err := other.Set(node, []byte("revoke"), -1)
			synctest.Wait()
			return err
		},
		"written to twice, then deleted": func(other *zk.Conn, node string) error {
			_, err := other.Set(node, []byte("revoke"), -1)
			synctest.Wait()
			_, again := other.Set(node, []byte("really"), -1)
			synctest.Wait()
			return errors.Join(err, again)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p, _ := attach(t, s)
				n := p.acquire(t)
				other := raw(t, s)
				wantErr(t, "writing", before(other, n.Path()), nil)
				wantErr(t, "Err before", n.Err(), nil)
				wantErr(t, "Delete", other.Delete(n.Path(), -1), nil)
				deleted := time.Now()
				awaitLoss(t, n)
				if late := time.Since(deleted); late != 0 {
					t.Errorf("the loss was noticed after %v, want at once", late)
				}
				wantErr(t, "Release", n.Release(), zklock.ErrLost)
			})
		})
	}
}

// Nobody vouches for a lock without a lease but the server.
func TestAttachedRequeueSaysWhenItIsNotKnownWhetherTheLockWasOurs(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*zktest.Server)
		want    error
	}{
		"no server": {down, zk.ErrNoServer},
		"its answer lost": {func(s *zktest.Server) {
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Stage == zktest.Reply && f.Op == zktest.OpMulti {
					s.Member(addr).Refuse()
					return zktest.Cut
				}
				return zktest.Pass
			})
		}, zk.ErrConnectionClosed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p, _ := attach(t, s)
				n := p.acquire(t)
				c.trouble(s)
				ctx, cancel := context.WithCancel(t.Context())
				again := submit(func() (*zklock.Node, error) { return n.Requeue(ctx) })
				wantErr(t, "AwaitRelease", n.AwaitRelease(), c.want)
				cancel()
				wantErr(t, "Requeue", again.failed(t), context.Canceled)
			})
		})
	}
}

// The event of the deletion may be on its way from the watch to the lock.
func TestReleaseKnowsOfADeletionThatHasJustBeenHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		attached, _ := attach(t, s)
		for _, p := range []process{attached, start(t, s)} {
			n := p.acquire(t)
			n.HearOfItsEnd()
			wantErr(t, "Release", n.Release(), zklock.ErrLost)
			s.Expire(p.session) // takes the node away, of which nobody has heard in truth
		}
	})
}

func TestAttachedReleaseOfALostLockSaysThatItIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		n := p.acquire(t)
		undead(t, s, p, conn)
		for conn.State() != zk.StateHasSession {
			<-time.After(time.Millisecond) // virtual
		}
		s.Freeze()
		wantErr(t, "Release", n.Release(), zklock.ErrLost)
		s.Unfreeze()
	})
}
