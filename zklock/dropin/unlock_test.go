package dropin_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock/dropin"
	"github.com/tierlock/tierlock/zklock/zktest"
)

// closingScene returns a scene that ends only when all goroutines have noticed that their connection is closed.
func closingScene(t *testing.T, srv *zktest.Server) *scene {
	t.Helper()
	t.Cleanup(func() { <-time.After(5 * time.Second) }) // virtual; runs when the connections are closed
	s := newScene(t, modelAddr, srv.DialTimeout)
	s.srv = srv
	return s
}

// locked returns a handle that holds the lock.
func (s *scene) locked(t *testing.T) *dropin.Lock {
	t.Helper()
	l := dropin.NewLock(s.conn, s.path, s.acl)
	need.OK(t, l.Lock())
	return l
}

// beginClose starts to close the connection. The end of the test waits until it is closed.
func (s *scene) beginClose() {
	var closing sync.WaitGroup
	closing.Go(s.conn.Close)
	s.t.Cleanup(closing.Wait)
}

// If Unlock returns nil, the lock was held until then. Otherwise its error comes in time. It makes no difference whether another goroutine
// waits at the gate, which could get the lock without a request.
func TestUnlockSaysInTimeThatItIsNotKnownWhetherTheLockWasOurs(t *testing.T) { // I1
	for name, trouble := range map[string]func(*scene){
		"no answer": func(s *scene) { s.srv.Freeze() },
		"its answer lost": func(s *scene) {
			s.srv.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Reply && (f.Op == "delete" || f.Op == "multi") {
					s.member().Refuse() // keeps the library from connecting again, because setting its watches again is a data race of the library
					return zktest.Cut
				}
				return zktest.Pass
			})
		},
	} {
		for _, siblings := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, %d waiting", name, siblings), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := closingScene(t, srv)
					h := s.locked(t)
					for range siblings {
						go dropin.NewLock(s.conn, s.path, s.acl).Lock() // waits until the connection is closed
					}
					<-time.After(time.Second) // virtual
					trouble(s)
					began := time.Now()
					if err := h.Unlock(); !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
						t.Errorf("Unlock: got %v, want an error of the connection", err)
					}
					need.AtMost(t, "Unlock took", time.Since(began), 6*time.Second)
					locktest.WantErr(t, "second Unlock", h.Unlock(), zk.ErrNotLocked)
					s.member().Refuse()
					srv.CutAll()
					srv.Unfreeze()
				})
			})
		}
	}
}

// A handle may wait at the gate behind another handle of the same connection. When the connection ends, the wait ends, whatever the other
// handle and the server do.
func TestHandleAtTheGateEndsWithTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := closingScene(t, srv)
		s.locked(t)
		outcome := make(chan error, 1)
		go func() { outcome <- dropin.NewLock(s.conn, s.path, s.acl).Lock() }()
		synctest.Wait()
		srv.Freeze()
		began := time.Now()
		s.beginClose()
		need.WantErr(t, "Lock", <-outcome, tier.ErrClosed, zk.ErrClosing)
		need.AtMost(t, "the handle waited for", time.Since(began), 100*time.Millisecond)
		s.member().Refuse()
		srv.CutAll()
		srv.Unfreeze()
	})
}

// A hand-off within the process needs no request, unless the server has not answered for a while.
func TestHandingOnIsConfirmedByTheServerNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := closingScene(t, srv)
		<-time.After(time.Second) // virtual
		first := s.locked(t)
		var others sync.WaitGroup
		for range 100 {
			others.Go(func() {
				l := dropin.NewLock(s.conn, s.path, s.acl)
				if err := l.Lock(); err != nil {
					t.Error(err)
					return
				}
				<-time.After(30 * time.Millisecond) // virtual
				locktest.WantErr(t, "Unlock", l.Unlock(), nil)
			})
		}
		synctest.Wait()
		var writes atomic.Int32
		srv.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "multi" && f.Dir == zktest.Request {
				writes.Add(1)
			}
			return zktest.Pass
		})
		locktest.WantErr(t, "Unlock", first.Unlock(), nil)
		others.Wait()
		need.Equal(t, "confirmations, one in 270 ms, and the delete", writes.Load(), 99*30/270+1)
	})
}
