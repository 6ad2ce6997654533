package tier_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// permitLease is for how long what a process has is its own if its heartbeat is not answered.
const permitLease = sessionTimeout - sessionTimeout/3

// unrenewed lets all through but what renews the lease of a session, and what hook says of its other frames.
func unrenewed(srv *zktest.Server, session int64, hook func(*zktest.Frame) zktest.Action) {
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		switch {
		case f.Session != session:
			return zktest.Pass
		case f.Stage == zktest.Request && f.Op == zktest.OpSync:
			return zktest.Error(zktest.CodeThrottled)
		}
		return hook(f)
	})
}

func pass(*zktest.Frame) zktest.Action { return zktest.Pass }

// The server knows of no loss, and would let them be released as if nothing had been.
func TestPermitsWhoseLeaseRanOutAreLost(t *testing.T) {
	zkLimited(t, 4, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		for _, k := range []int{1, 3} {
			s := process()
			unrenewed(srv, session(srv), pass)
			permits := take(t, s, k)
			<-permits.Lost()
			if err := permits.Release(); !errors.Is(err, tier.ErrLost) {
				t.Errorf("Release of %d: %v, want ErrLost", k, err)
			}
			if left := srv.Children(pool + "/leases"); len(left) != 0 {
				t.Errorf("left after the release of %d: %v", k, left)
			}
			srv.Intercept(nil)
		}
	})
}

// The answer to the one write that takes permits comes when the lease is over: nothing would tell of their loss.
func TestPermitsAreNotTakenWithoutALease(t *testing.T) { // I1
	zkLimited(t, 2, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		a, b := process(), process()
		begun := time.Now() // of the lease of b
		late := make(chan struct{})
		note := sync.OnceFunc(func() { close(late) })
		unrenewed(srv, session(srv), func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Reply && f.Op == zktest.OpMulti && f.First == zktest.OpDelete {
				note()
				return zktest.Delay(2 * time.Millisecond)
			}
			return zktest.Pass
		})
		two := take(t, a, 2)
		waiting := ask(soon(t), b, 2).waits(t)
		time.Sleep(time.Until(begun.Add(permitLease - time.Millisecond)))
		giveBack(t, two)
		<-late
		time.Sleep(time.Second)
		waiting.waits(t)
		if left := srv.Children(pool + "/leases"); len(left) != 0 {
			t.Errorf("taken: %v, by one whose lease is over", left)
		}
		srv.Intercept(nil)
		got := waiting.served(t)
		if !got.ValidUntil().After(time.Now()) {
			t.Errorf("valid until %v, and Err says %v", got.ValidUntil(), got.Err())
		}
		giveBack(t, got)
	})
}

// While the connection is down nobody knows what has become of permits: they are not handed on, and those who wait get others.
func TestPermitsAreNotHandedOnWithoutAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks, p := dial(t, srv, "")
		s := locks.Semaphore(pool, 1, tier.WithHandOff(time.Hour))
		one := take(t, s, 1)
		next := ask(soon(t), s, 1).waits(t)
		heal := cut(p)
		giveBack(t, one)
		next.waits(t)
		heal()
		got := next.served(t)
		if got.Token() <= one.Token() {
			t.Errorf("token %d after %d, want permits from the store", got.Token(), one.Token())
		}
		giveBack(t, got)
		wantNothing(t, srv, locks)
	})
}

// Somebody says how many there are, between the look that found nothing and the write.
func TestNumberOfPermitsOfSomebodyElseIsNotOverwritten(t *testing.T) {
	for name, c := range map[string]struct {
		take func(*tier.Semaphore, context.Context, int) (*tier.Permits, error)
		want string
	}{
		"Acquire":    {(*tier.Semaphore).Acquire, "says 4, this process 3"}, // it looks again
		"TryAcquire": {(*tier.Semaphore).TryAcquire, "the number of permits was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			zkBubble(t, func(t *testing.T, srv *zktest.Server) {
				conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
				for _, path := range []string{"/limits", pool} {
					if _, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
						t.Fatal(err)
					}
				}
				s := zkProcess(t, srv).Semaphore(pool, 3)
				id := session(srv)
				srv.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Session == id && f.Stage == zktest.Request && f.Op == zktest.OpSetData && f.NthOfSession == 1 {
						if _, err := conn.Set(pool, []byte("tierlock permits=4"), -1); err != nil {
							t.Error(err)
						}
					}
					return zktest.Pass
				})
				permits, err := c.take(s, soon(t), 1)
				if err == nil {
					giveBack(t, permits)
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want an error that says %q", err, c.want)
				}
				if got := stored(srv); got != "tierlock permits=4" {
					t.Errorf("content of the path: %q, want what was written meanwhile", got)
				}
				zkWantNothing(t, srv)
			})
		})
	}
}

// exchanges lets act decide what becomes of the first transaction of a session that takes permits, at a stage.
func exchanges(srv *zktest.Server, session int64, stage zktest.Stage, act func() zktest.Action) {
	var once sync.Once
	srv.Intercept(func(f *zktest.Frame) (a zktest.Action) {
		if f.Session == session && f.Stage == stage && f.Op == zktest.OpMulti && strings.HasPrefix(f.Path, pool+"/locks/") {
			once.Do(func() { a = act() })
		}
		return a
	})
}

// The token is that of the turn, also if nobody answered: those who queue already have a higher one, and come later.
func TestTokenOfPermitsWhoseAnswerIsLost(t *testing.T) { // I8
	zkLimited(t, 2, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		a, b := process(tier.WithHandOff(0)), process()
		exchanges(srv, session(srv), zktest.Reply, func() zktest.Action { return zktest.Cut })
		two := take(t, a, 2)
		waiting := ask(soon(t), b, 2).waits(t)
		later := ask(soon(t), a, 2).waits(t)
		giveBack(t, two)
		got := waiting.served(t)
		giveBack(t, got)
		next := later.served(t)
		if next.Token() <= got.Token() {
			t.Errorf("token %d after %d", next.Token(), got.Token())
		}
		giveBack(t, next)
	})
}

// Somebody deletes one of the permits before whoever took them has learned that it did.
func TestPermitsOfWhichOneIsGoneBeforeTheAnswer(t *testing.T) {
	zkLimited(t, 3, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		s := process()
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		giveBack(t, take(t, s, 1)) // makes the parents
		exchanges(srv, srv.Sessions()[0].ID, zktest.Reply, func() zktest.Action {
			if err := conn.Delete(pool+"/leases/"+srv.Children(pool + "/leases")[1], -1); err != nil {
				t.Error(err)
			}
			return zktest.Cut
		})
		got := take(t, s, 3)
		if n := len(srv.Children(pool + "/leases")); got.Count() != 3 || n != 3 || got.Err() != nil {
			t.Errorf("got %d permits, %d are taken, and Err says %v; want 3", got.Count(), n, got.Err())
		}
		giveBack(t, got)
	})
}

// It is an error, and the turn goes.
func TestPermitsThatMayNotBeTaken(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		for _, path := range []string{"/limits", pool, pool + "/leases"} {
			perms := int32(zk.PermAll)
			if path == pool+"/leases" {
				perms &^= zk.PermCreate
			}
			if _, err := conn.Create(path, nil, 0, zk.WorldACL(perms)); err != nil {
				t.Fatal(err)
			}
		}
		s := zkProcess(t, srv).Semaphore(pool, 3)
		for _, take := range []func(context.Context, int) (*tier.Permits, error){s.Acquire, s.TryAcquire} {
			if _, err := take(soon(t), 1); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "CREATE") {
				t.Errorf("got %v, want what is not permitted", err)
			}
			synctest.Wait()
			if queue := srv.Children(pool + "/locks"); len(queue) != 0 {
				t.Errorf("left in the queue: %v", queue)
			}
		}
	})
}

// The connection breaks before the server has read the request.
func TestReleaseOfPermitsThatIsLost(t *testing.T) {
	zkLimited(t, 3, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		permits := take(t, process(), 3)
		srv.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Stage == zktest.Request && f.Op == zktest.OpMulti && strings.HasPrefix(f.Path, pool+"/leases/") && f.NthOfSession == 2 {
				return zktest.Cut
			}
			return zktest.Pass
		})
		begun := time.Now()
		giveBack(t, permits)
		if d := time.Since(begun); d != 0 {
			t.Errorf("Release took %v, want it to leave the rest to the background", d)
		}
	})
}

// Nor is it told as a loss when their end is heard of.
func TestPermitsThatAreReleasedAreNoLoss(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		var log bytes.Buffer
		warnings := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		s := zkProcess(t, srv, zklock.WithLogger(warnings)).Semaphore(pool, 3)
		permits := take(t, s, 3)
		time.Sleep(sessionTimeout / 3) // by then their end is watched
		giveBack(t, permits)
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("logged: %s", log.String())
		}
	})
}
