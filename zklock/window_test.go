package zklock_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// What happens between two lines that belong together: an attached client tells when it is between them. No time may pass
// there, because it has a mutex.

// The connection may break after the look at the queue. A create would then wait for another one.
func TestTryAcquireThatLosesTheConnectionBeforeItsCreateFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		p.AfterReadingID(sync.OnceFunc(func() {
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Op == zktest.OpConnect {
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
			case f.Stage != zktest.Request:
			case f.Op == zktest.OpMulti && f.First == zktest.OpCreate:
				creates++
			case f.Op == zktest.OpGetData && strings.Contains(f.Path, "-lock-") && !written:
				written = true
				time.AfterFunc(time.Millisecond, func() {
					if _, err := other.Set(pairs(t, s)[0][1], []byte("x"), -1); err != nil {
						t.Error(err)
					}
				})
				return zktest.Error(throttled)
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
