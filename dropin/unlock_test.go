package dropin_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/dropin"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zktest"
)

// closingScene is a scene that lasts until whoever serves a closed connection has noticed.
func closingScene(t *testing.T, srv *zktest.Server) *scene {
	t.Helper()
	t.Cleanup(func() { <-time.After(5 * time.Second) }) // virtual
	s := newScene(t, modelAddr, srv.DialTimeout)
	s.srv = srv
	return s
}

// beginClose closes the connection and does not wait for that; the end of the test does.
func (s *scene) beginClose() {
	var closing sync.WaitGroup
	closing.Go(s.conn.Close)
	s.t.Cleanup(closing.Wait)
}

// Nil means that the lock was ours to the end. Whether somebody waits at the gate, to whom
// the lock could be handed on without a word to the server, makes no difference.
func TestUnlockSaysWhenItIsNotKnownWhetherTheLockWasOurs(t *testing.T) { // I1
	for name, c := range map[string]struct {
		held    time.Duration
		trouble func(*scene)
		also    error // what it may be besides an error of the connection
	}{
		"blackholed": {held: time.Second, trouble: func(s *scene) {
			s.srv.Mute(s.conn.SessionID(), zktest.Request)
			s.srv.Mute(s.conn.SessionID(), zktest.Reply)
		}},
		"frozen": {held: time.Second, trouble: func(s *scene) { s.srv.Freeze() }},
		"away":   {trouble: (*scene).away},
		"closed": {trouble: func(s *scene) { s.conn.Close() }, also: tier.ErrLost},
		"being closed": {trouble: func(s *scene) {
			s.srv.Mute(s.conn.SessionID(), zktest.Request)
			s.beginClose()
			s.still()
		}},
		"closed out of reach": {trouble: func(s *scene) {
			s.srv.Mute(s.conn.SessionID(), zktest.Request)
			s.beginClose()
			<-time.After(200 * time.Millisecond) // virtual
		}},
		"its answer lost": {held: time.Second, trouble: func(s *scene) {
			s.srv.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Reply && (f.Op == "delete" || f.Op == "multi") {
					s.member().Refuse() // a connection that comes back sets its watches again, which is a data race of the library
					return zktest.Cut
				}
				return zktest.Pass
			})
		}},
	} {
		for _, siblings := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, %d waiting", name, siblings), func(t *testing.T) {
				bubble(t, func(t *testing.T, srv *zktest.Server) {
					s := closingScene(t, srv)
					h := dropin.NewLock(s.conn, s.path, s.acl)
					if err := h.Lock(); err != nil {
						t.Fatal(err)
					}
					for range siblings {
						go func() { // until the connection is closed
							sibling := dropin.NewLock(s.conn, s.path, s.acl)
							if sibling.Lock() == nil {
								sibling.Unlock()
							}
						}()
					}
					<-time.After(c.held) // virtual
					synctest.Wait()
					c.trouble(s)
					began := time.Now()
					err := h.Unlock()
					ofConnection := errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer)
					if !ofConnection && (c.also == nil || !errors.Is(err, c.also)) {
						t.Errorf("Unlock: got %v, want an error of the connection", err)
					}
					if took := time.Since(began); took > 6*time.Second {
						t.Errorf("Unlock took %v", took)
					}
					if err := h.Unlock(); !errors.Is(err, zk.ErrNotLocked) {
						t.Errorf("second Unlock: got %v, want ErrNotLocked", err)
					}
					srv.Intercept(nil)
					s.member().Refuse()
					srv.CutAll()
					srv.Unfreeze()
				})
			})
		}
	}
}

// A request on a connection that is being closed can stop the library for ever (conn.go:527);
// the bubble fails if it does.
func TestNothingIsSentOnceTheConnectionIsBeingClosed(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := closingScene(t, srv)
			l := dropin.NewLock(s.conn, s.path, s.acl)
			if err := l.Lock(); err != nil {
				t.Fatal(err)
			}
			srv.Mute(s.conn.SessionID(), zktest.Reply)
			var m meter
			srv.Intercept(func(f *zktest.Frame) zktest.Action {
				if m.note(f); f.Op == "closeSession" {
					return zktest.Drop
				}
				return zktest.Pass
			})
			outcome := make(chan error, 1)
			go func() { outcome <- l.Unlock() }()
			synctest.Wait()
			s.beginClose()
			if err := <-outcome; !errors.Is(err, zk.ErrConnectionClosed) {
				t.Errorf("Unlock: got %v, want ErrConnectionClosed", err)
			}
			<-time.After(5 * time.Second)      // virtual
			if ops := m.seen(); len(ops) > 3 { // a delete, the close, and one that met it: the library refuses what comes behind that
				t.Errorf("sent %v", ops)
			}
			srv.Intercept(nil)
		})
	}
}

// The connection is closed at any moment around Unlock, and another process takes the lock
// as soon as it can. About once in 20,000 rounds a request meets the close so that the library
// never answers it (conn.go:936 puts it behind the flush), and the bubble fails for that.
func TestUnlockIsNilOnlyIfNobodyElseHadTheLock(t *testing.T) { // I1
	for round := range 80 {
		bubble(t, func(t *testing.T, srv *zktest.Server) {
			s := closingScene(t, srv)
			owner, next := dropin.NewLock(s.conn, s.path, s.acl), dropin.NewLock(s.other, s.path, s.acl)
			if err := owner.Lock(); err != nil {
				t.Fatal(err)
			}
			var others sync.WaitGroup
			if round%2 == 1 {
				others.Go(func() { dropin.NewLock(s.conn, s.path, s.acl).Lock() })
				synctest.Wait()
			}
			var taken atomic.Bool
			others.Go(func() {
				if next.Lock() == nil {
					taken.Store(true)
					next.Unlock()
				}
			})
			synctest.Wait()
			s.beginClose()
			for range round {
				runtime.Gosched()
			}
			before := taken.Load()
			if err := owner.Unlock(); err == nil && before {
				t.Errorf("round %d: Unlock said nil after another process had the lock", round)
			}
			others.Wait()
		})
	}
}

// Handing on within the process costs no request, as long as the server has been heard of a
// moment ago.
func TestHandingOnIsConfirmedByTheServerNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T, srv *zktest.Server) {
		s := closingScene(t, srv)
		first := dropin.NewLock(s.conn, s.path, s.acl)
		<-time.After(time.Second) // virtual
		if err := first.Lock(); err != nil {
			t.Fatal(err)
		}
		turns := 0
		var others sync.WaitGroup
		for range 100 {
			others.Go(func() {
				l := dropin.NewLock(s.conn, s.path, s.acl)
				if err := l.Lock(); err != nil {
					t.Error(err)
					return
				}
				turns++
				<-time.After(30 * time.Millisecond) // virtual
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
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
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
		others.Wait()
		if want := 99 * 30 / 270; int(writes.Load()) != want {
			t.Errorf("%d confirmations, want %d, one in 270 ms", writes.Load(), want)
		}
	})
}
