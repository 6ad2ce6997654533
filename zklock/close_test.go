package zklock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

func TestEverythingAskedOfAClosedClientSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.Close()
		select {
		case <-p.Done():
		default:
			t.Error("Done is open")
		}
		_, err := p.lock.Acquire(t.Context())
		wantErr(t, "Acquire", err, zklock.ErrClosed)
		_, err = p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire", err, zklock.ErrClosed)
		_, err = p.lock.Contenders(t.Context())
		wantErr(t, "Contenders", err, zklock.ErrClosed)
		wantErr(t, "Err", p.Err(), zklock.ErrClosed)
	})
}

func TestCloseMayBeCalledByManyAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.acquire(t)
		var closers sync.WaitGroup
		for range 5 {
			closers.Go(func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		closers.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The bubble fails if a goroutine is left after any of these.
func TestCloseIsBoundedWhateverIsGoingOn(t *testing.T) {
	const bound = 3 * time.Second // the library by itself takes up to two thirds of the session timeout
	for name, trouble := range map[string]func(s *zktest.Server, p process){
		"nothing":      func(*zktest.Server, process) {},
		"mute server":  func(s *zktest.Server, _ process) { s.Freeze() },
		"no server":    func(s *zktest.Server, _ process) { down(s) },
		"expired":      func(s *zktest.Server, p process) { s.Expire(p.session) },
		"reconnecting": func(s *zktest.Server, p process) { s.Freeze(); s.Cut(p.session); time.Sleep(beat / 2) },
		"muted to the client": func(s *zktest.Server, p process) {
			s.Mute(p.session, zktest.Reply)
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				p.acquire(t)
				r := p.queue(t.Context())
				trouble(s, p)
				l := p.queue(t.Context())
				begun := time.Now()
				p.Close()
				if d := time.Since(begun); d > bound {
					t.Errorf("took %v, want at most %v", d, bound)
				}
				wantErr(t, "waiter", r.failed(t), zklock.ErrClosed)
				wantErr(t, "late waiter", l.failed(t), zklock.ErrClosed)
				s.Unfreeze()
			})
		})
	}
}

func TestCloseWhileTheParentsAreBeingMade(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "createContainer" {
				return zktest.Delay(200 * time.Millisecond)
			}
			return zktest.Pass
		})
		r := p.queue(t.Context())
		p.Close()
		wantErr(t, "waiter", r.failed(t), zklock.ErrClosed)
	})
}

func TestCloseIsBoundedThoughTheParentsAreNeverMade(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "createContainer" {
				return zktest.Drop
			}
			return zktest.Pass
		})
		r := p.queue(t.Context())
		begun := time.Now()
		p.Close()
		if d := time.Since(begun); d > 5*time.Second {
			t.Errorf("Close took %v", d)
		}
		wantErr(t, "waiter", r.failed(t), zklock.ErrClosed)
	})
}

func TestFailedDialLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Dir == zktest.Request && f.Op == "setAuth" {
				return zktest.Error(zk.ErrAuthFailed)
			}
			return zktest.Pass
		})
		begun := time.Now()
		_, err := zklock.Dial(ctx, addr, zklock.WithDialContext(s.DialContext), zklock.WithAuth("digest", []byte("u:p")))
		wantErr(t, "Dial", err, zk.ErrAuthFailed)
		if d := time.Since(begun); d > 2*time.Second {
			t.Errorf("returned after %v", d)
		}
		synctest.Wait()
		if got := s.Sessions(); len(got) > 0 {
			t.Errorf("sessions left: %+v", got)
		}
	})
}
