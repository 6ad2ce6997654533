package zklock_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const limits = "/limits/x"

// semaphore returns one of two permits.
func (p process) semaphore(t *testing.T) second.Semaphore {
	t.Helper()
	s, err := second.TierOf(p.Client).Semaphore(limits, 2, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takers returns what takes permits, and says how many as take does.
func takers(t *testing.T, p process, take func(free int) int) (
	acquire func() ([]second.Permit, error), release func([]second.Permit) error,
) {
	t.Helper()
	s := p.semaphore(t)
	return func() ([]second.Permit, error) { return s.Acquire(t.Context(), &second.Demand{Take: take}) }, s.Release
}

// Whoever has the turn is stopped while it decides how many to take, until the lease is over.
func TestTurnWhoseLeaseRanOutTakesNothing(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var first string
		acquire, release := takers(t, p, func(int) int {
			if first == "" {
				first = s.Children(limits + "/locks")[0]
				time.Sleep(lease)
				synctest.Wait()
			}
			return 2
		})
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				if c.Op == "create" && strings.HasPrefix(c.Path, limits+"/leases/") {
					t.Errorf("%s was taken without a lease", c.Path)
				}
			}
		})
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Dir == zktest.Request && f.Op == "sync" { // else the lease is renewed
				return zktest.Throttled
			}
			return zktest.Pass
		})
		done := make(chan struct{})
		var permits []second.Permit
		go func() {
			defer close(done)
			var err error
			if permits, err = acquire(); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(lease + time.Second)
		synctest.Wait()
		if queue := s.Children(limits + "/locks"); len(queue) != 1 || queue[0] == first {
			t.Errorf("the queue is %v, want another turn in the place of %s", queue, first)
		}
		s.OnChange(nil)
		s.Intercept(nil)
		<-done
		if err := release(permits); err != nil {
			t.Errorf("release: %v", err)
		}
	})
}

// both waits for two permits, a minute at most.
func both(t *testing.T, s second.Semaphore) ([]second.Permit, error) {
	t.Helper()
	ctx := within(t, time.Minute)
	return s.Acquire(ctx, &second.Demand{Take: func(free int) int { return free / 2 * 2 }})
}

// trades reports whether a frame is of the transaction that gives a turn up for permits.
func trades(f *zktest.Frame) bool {
	return f.Op == "multi" && f.First == "delete" && strings.HasPrefix(f.Path, limits+"/locks/")
}

// throttle keeps leases from being renewed.
func throttle(f *zktest.Frame) zktest.Action {
	if f.Dir == zktest.Request && f.Op == "sync" {
		return zktest.Throttled
	}
	return zktest.Pass
}

// Over a connection made elsewhere requests have no order but that of their answers.
func TestPermitsAreAskedForOnceTheirParentsAreThere(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		var mu sync.Mutex // guards the fields below
		asked, traded := 0, false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op != "createContainer" && !trades(f) {
				return zktest.Pass
			}
			mu.Lock()
			defer mu.Unlock()
			if f.Dir == zktest.Reply {
				asked--
				return zktest.Pass
			}
			if asked++; asked > 1 {
				t.Errorf("%v while another one is not answered", f)
			}
			traded = traded || trades(f)
			return zktest.Delay(time.Millisecond)
		})
		sem := p.semaphore(t)
		permits, err := sem.TryAcquire(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if !traded {
			t.Error("no turn was traded")
		}
		wantErr(t, "Release", sem.Release(permits), nil)
	})
}

// A container that never had a child stays for ever unless whoever made it deletes it.
func TestParentsOfPermitsThatAreNotTakenGo(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, sem := raw(t, s), start(t, s).semaphore(t)
		made := false
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if trades(f) && f.Dir == zktest.Request {
				made = s.Exists(limits + "/leases")
				remove(t, conn, f.Path)
			}
			return zktest.Pass
		})
		if _, err := sem.TryAcquire(t.Context(), 2); err == nil {
			t.Error("permits were taken without the turn")
		}
		synctest.Wait()
		if left := s.Exists(limits + "/leases"); !made || left {
			t.Errorf("the parent was made: %t, and is left: %t", made, left)
		}
	})
}

func TestPermitsWhoseParentMayNotBeMadeAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/limits", limits, limits+"/locks")
		protect(t, conn, limits, zk.PermAll&^zk.PermCreate)
		sem := start(t, s).semaphore(t)
		_, err := sem.TryAcquire(t.Context(), 2)
		wantErr(t, "TryAcquire", err, zk.ErrNoAuth)
		_, err = both(t, sem)
		wantErr(t, "Acquire", err, zk.ErrNoAuth)
		synctest.Wait()
		if queue := s.Children(limits + "/locks"); len(queue) != 0 {
			t.Errorf("left in the queue: %v", queue)
		}
	})
}

// Else somebody goes on asking whether the connection was closed, though nothing is held.
func TestTurnThatIsTradedNeedsTheConnectionNoLonger(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, conn := attach(t, s)
		sem := p.semaphore(t)
		permits, err := both(t, sem)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Release", sem.Release(permits), nil)
		synctest.Wait() // who was asking has stopped
		conn.Close()
		select {
		case <-p.Done():
			t.Error("somebody has asked, though nothing is held")
		case <-time.After(time.Minute): // virtual
		}
	})
}

// As after any other turn.
func TestQueueForPermitsBeginsAnewWhenItIsWorn(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).semaphore(t)
		number := int32(-1)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if trades(f) && f.Dir == zktest.Request {
				number = numberOf(f.Path)
			}
			return zktest.Pass
		})
		for i, want := range []int32{0, wornFrom, 0} {
			permits, err := both(t, sem)
			if err != nil {
				t.Fatal(err)
			}
			if number != want {
				t.Errorf("turn %d has the number %d, want %d", i, number, want)
			}
			if i == 0 {
				s.SetSequence(limits+"/locks", wornFrom)
			}
			wantErr(t, "Release", sem.Release(permits), nil)
			time.Sleep(timeout)
		}
	})
}

// The answer to the trade is lost, and the look at the permits finds one that is gone, or may not be read.
func TestPermitsAreAdoptedWholeOrNotAtAll(t *testing.T) {
	type row struct {
		look func(t *testing.T, conn *zk.Conn, permit string) zktest.Action
		want error // nil if others are taken
	}
	each(t, map[string]row{
		"gone": {look: func(t *testing.T, conn *zk.Conn, permit string) zktest.Action {
			remove(t, conn, permit)
			return zktest.Pass
		}},
		"unreadable": {
			look: func(*testing.T, *zk.Conn, string) zktest.Action { return zktest.Error(zk.ErrNoAuth) },
			want: zk.ErrNoAuth,
		},
	}, func(t *testing.T, s *zktest.Server, c row) {
		conn, p := raw(t, s), start(t, s)
		sem := p.semaphore(t)
		var cut, looked sync.Once
		s.Intercept(func(f *zktest.Frame) (fate zktest.Action) {
			switch {
			case trades(f) && f.Dir == zktest.Reply:
				cut.Do(func() { fate = zktest.Cut })
			case f.Op == "getData" && f.Dir == zktest.Request && strings.HasPrefix(f.Path, limits+"/leases/"):
				looked.Do(func() { fate = c.look(t, conn, f.Path) })
			}
			return fate
		})
		permits, err := both(t, sem)
		wantErr(t, "Acquire", err, c.want)
		time.Sleep(timeout / 2) // by then nothing is left of those that were given up
		if taken := s.Children(limits + "/leases"); len(taken) != len(permits) || (err == nil) != (len(permits) == 2) {
			t.Errorf("%d permits are had, and taken are %v", len(permits), taken)
		}
		if err == nil {
			wantErr(t, "Release", sem.Release(permits), nil)
		}
		if p.Reaping() != 0 {
			t.Errorf("still reaping %d", p.Reaping())
		}
	})
}

// Whoever was stopped finds out by the release alone.
func TestLossThatTheReleaseOfPermitsFindsIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		sem := p.semaphore(t)
		permits, err := both(t, sem)
		if err != nil {
			t.Fatal(err)
		}
		s.Intercept(throttle)
		for _, permit := range permits {
			permit.(interface{ StopWatchdog() }).StopWatchdog()
		}
		time.Sleep(lease + time.Millisecond)
		wantErr(t, "Release", sem.Release(permits), zklock.ErrLost)
		synctest.Wait()
		wantLines(t, log, slog.LevelWarn, "lock lost", len(permits))
	})
}

// It is asked for once, not with each turn.
func TestTheNumberThatMayNotBeWrittenIsNotWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		put(t, conn, 0, "/limits")
		if _, err := conn.Create(limits, nil, 0, zk.WorldACL(zk.PermAll&^zk.PermWrite)); err != nil {
			t.Fatal(err)
		}
		sem, tr := p.semaphore(t), record(s)
		for range 3 {
			permits, err := both(t, sem)
			if err != nil {
				t.Fatal(err)
			}
			wantErr(t, "Release", sem.Release(permits), nil)
		}
		writes := 0
		for _, op := range tr.take() {
			if op == "setData" {
				writes++
			}
		}
		if writes != 1 {
			t.Errorf("asked for it %d times", writes)
		}
	})
}

// Whoever has left while the number of permits was being written has a place in the queue until that is answered.
func TestATurnWaitsForOneThatWasAbandoned(t *testing.T) { // I3
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		var queued, most atomic.Int64
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				switch {
				case !strings.HasPrefix(c.Path, limits+"/locks/"):
				case c.Op == "create":
					most.Store(max(most.Load(), queued.Add(1)))
				case c.Op == "delete":
					queued.Add(-1)
				}
			}
		})
		meetOnce(s, is("setData", zktest.Reply), zktest.Delay(time.Second))
		acquire, release := takers(t, p, func(free int) int { return min(free, 1) })
		ctx := within(t, 100*time.Millisecond)
		_, err := p.semaphore(t).Acquire(ctx, &second.Demand{Take: func(free int) int { return min(free, 1) }})
		wantErr(t, "Acquire", err, context.DeadlineExceeded)
		permits, err := acquire()
		if err != nil || most.Load() != 1 {
			t.Fatalf("%d places in the queue at once, %v", most.Load(), err)
		}
		wantErr(t, "Release", release(permits), nil)
	})
}
