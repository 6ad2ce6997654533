package zklock_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// Another library's contenders do not step aside, and a holder may take long.
func TestWaitOutsideAWornPathEndsAfterASessionTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		option, log := logged()
		p := start(t, s, option)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		foreign := path + "/_c_x-lock-" + strconv.Itoa(wornFrom+1)
		put(t, conn, 0, foreign)
		s.SetSequence(path, wornFrom+2)
		r := p.requeue(t, n)
		if names := s.Children(path); len(names) != 1 {
			t.Errorf("queue right after the release: %q", names)
		}
		time.Sleep(timeout - time.Millisecond)
		if names := s.Children(path); len(names) != 1 || strings.Contains(log.String(), "sequence numbers") {
			t.Errorf("queue shortly before a timeout: %q; logged %s", names, log)
		}
		time.Sleep(2 * time.Millisecond)
		if names := s.Children(path); len(names) != 2 || strings.Count(log.String(), "sequence numbers") != 1 || p.Watchers(path) > 0 {
			t.Errorf("queue after a timeout: %q; %d watchers; logged %s", names, p.Watchers(path), log)
		}
		if err := conn.Delete(foreign, -1); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		p.requeue(t, r.granted(t)).granted(t).Release()
		if d := time.Since(begun); d > 0 || p.Watchers(path) > 0 {
			t.Errorf("went outside again, for %v; %d watchers", d, p.Watchers(path))
		}
	})
}

func TestWaitOutsideAWornPathEndsWithContextAndClient(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(p process, cancel func())
		want error
	}{
		"context": {func(_ process, cancel func()) { cancel() }, context.Canceled},
		"client":  {func(p process, _ func()) { p.Close() }, zklock.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				option, log := logged()
				p, q := start(t, s, option), start(t, s)
				p.wear(t, s, wornFrom)
				n := p.acquire(t)
				other := q.queue(t.Context())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := submit(func() (*zklock.Node, error) { return n.Requeue(ctx) })
				if !r.waiting() {
					t.Fatal("did not wait")
				}
				begun := time.Now()
				taken := numbers(s)
				end.do(p, cancel)
				if wantErr(t, "Requeue", r.failed(t), end.want); time.Since(begun) > 0 {
					t.Errorf("left after %v", time.Since(begun))
				}
				other.granted(t).Release()
				time.Sleep(2 * timeout)
				if wantEmpty(t, s); strings.Contains(log.String(), "sequence numbers") || len(taken(p.session)) > 0 {
					t.Errorf("queued with %d, logged:\n%s", taken(p.session), log)
				}
			})
		})
	}
}

func TestTryAcquireDoesNotWaitOutside(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		foreign := path + "/_c_x-lock-" + strconv.Itoa(wornFrom+1)
		put(t, conn, 0, foreign)
		n.Release()
		synctest.Wait()
		begun := time.Now()
		_, err := p.lock.TryAcquire(t.Context())
		wantErr(t, "TryAcquire of a busy path", err, zklock.ErrLocked)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Event { // so that the path is not made anew yet
				return zktest.Drop
			}
			return zktest.Pass
		})
		if err := conn.Delete(foreign, -1); err != nil {
			t.Fatal(err)
		}
		if n, err = p.lock.TryAcquire(t.Context()); err != nil || time.Since(begun) > 0 {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		n.Release()
	})
}

func TestRenewalThatEndedWaitsForNoNews(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		n.Release()
		time.Sleep(timeout / 2)
		if got := p.Watchers(path); got != 1 {
			t.Errorf("%d watchers meanwhile", got)
		}
		time.Sleep(timeout)
		if got := p.Watchers(path); got != 0 {
			t.Errorf("%d watchers afterwards", got)
		}
		other.granted(t).Release()
	})
}

// Two acquisitions of one client are outside at the same time.
func TestWaitOutsideIsNotProlongedByOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		second := p.queue(t.Context())
		s.SetSequence(path, wornFrom+10)
		put(t, conn, 0, path+"/_c_x-lock-"+strconv.Itoa(wornFrom+2))
		n.Release()
		time.Sleep(timeout / 2)
		p.requeue(t, second.granted(t))
		time.Sleep(timeout/2 + time.Millisecond)
		if names := s.Children(path); len(names) != 2 {
			t.Errorf("queue a timeout after the first went outside: %q", names)
		}
	})
}

// Without a connection nothing is learned of the path.
func TestRenewalThatAnOutageEndsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		option, log := logged()
		p := start(t, s, option)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		on(s, zktest.OpSync, zktest.Request, zktest.Cut)
		s.Member(addr).Refuse()
		n.Release()
		time.Sleep(timeout - time.Second)
		s.Member(addr).Accept()
		time.Sleep(2 * time.Second)
		p.acquire(t).Release()
		n = p.acquire(t)
		if got := numberOf(n.Path()); got > 1 || strings.Contains(log.String(), "sequence") {
			t.Errorf("number %d, logged %s", got, log)
		}
		n.Release()
	})
}

// Its time is over before the connection is back, and so nobody is outside any more.
func TestRenewalThatEndsInAnOutageAsksForNothingAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		n.Release()
		time.Sleep(timeout - 1500*time.Millisecond) // the library refuses what it cannot send each second
		s.Member(addr).Refuse()
		s.Cut(p.session)
		time.Sleep(1600 * time.Millisecond)
		looks := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Session == p.session && f.Path == path {
				looks++
			}
			return zktest.Pass
		})
		s.Member(addr).Accept()
		time.Sleep(timeout / 4)
		if synctest.Wait(); looks > 0 || p.Err() != nil {
			t.Errorf("looked %d times; connection: %v", looks, p.Err())
		}
		other.granted(t).Release()
	})
}
