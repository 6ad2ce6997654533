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

func session(srv *zktest.Server) int64 {
	all := srv.Sessions()
	return all[len(all)-1].ID
}

func TestPermitsAreLostWithTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks, p := dial(t, srv, "")
		a, b := locks.Semaphore(pool, 4), process(t, srv).Semaphore(pool, 4)
		three := take(t, a, 3)
		work := three.Context(context.Background())
		if until := three.ValidUntil(); until.Before(time.Now()) {
			t.Errorf("valid until %v, want later than now", until)
		}
		heal := p.Cut()
		waiting := ask(soon(t), b, 2)
		<-three.Lost()
		synctest.Wait()
		if !waiting.pending() {
			t.Error("others have permits of one who has not lost them yet")
		}
		if err := context.Cause(work); !errors.Is(err, tier.ErrLost) || !errors.Is(three.Err(), tier.ErrLost) || !three.ValidUntil().IsZero() {
			t.Errorf("lost, but the context says %v, Err %v, and ValidUntil %v", err, three.Err(), three.ValidUntil())
		}
		giveBack(t, waiting.served(t))
		heal()
		if err := three.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}

// A permit that somebody deletes is told to those who hold it, and to nobody else; they keep none.
func TestPermitThatIsDeleted(t *testing.T) {
	zkLimited(t, 3, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		a := process()
		two := take(t, a, 2)
		names := srv.Children(pool + "/leases")
		one := take(t, a, 1)
		time.Sleep(sessionTimeout / 3) // by then its end is watched
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		if err := conn.Delete(pool+"/leases/"+names[0], -1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-two.Lost():
		default:
			t.Error("not told")
		}
		if one.Err() != nil {
			t.Errorf("told to others: %v", one.Err())
		}
		waiting := ask(soon(t), a, 2).waits(t)
		if err := two.Release(); !errors.Is(err, tier.ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
		got := waiting.served(t)
		if n := len(srv.Children(pool + "/leases")); n != 3 || got.Err() != nil {
			t.Errorf("%d permits are taken, and those behind the lost ones are told %v; want 1 and 2, and nothing", n, got.Err())
		}
		giveBack(t, got)
		giveBack(t, one)
	})
}

func TestPermitsAreReleasedOnce(t *testing.T) {
	limited(t, 4, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, taken func() int) {
		s := process()
		two := take(t, s, 2)
		work := two.Context(context.Background())
		if two.Count() != 2 || two.Path() != pool || two.Err() != nil || two.Token() <= 0 || work.Err() != nil {
			t.Errorf("permits: %d at %s, %v, token %d, context %v", two.Count(), two.Path(), two.Err(), two.Token(), work.Err())
		}
		giveBack(t, two)
		if err := context.Cause(work); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("the context says %v, want ErrReleased", err)
		}
		if err := context.Cause(two.Context(context.Background())); !errors.Is(err, tier.ErrReleased) {
			t.Errorf("a later context says %v, want ErrReleased", err)
		}
		later := take(t, s, 4)
		if err := two.Release(); !errors.Is(err, tier.ErrReleased) || !errors.Is(two.Err(), tier.ErrReleased) {
			t.Errorf("Release again: %v, Err %v, want ErrReleased", err, two.Err())
		}
		if n := taken(); n != 4 {
			t.Errorf("%d permits are taken after a second release, want 4", n)
		}
		if later.Token() <= two.Token() {
			t.Errorf("token %d after %d", later.Token(), two.Token())
		}
		giveBack(t, later)
		select {
		case <-two.Lost():
			t.Error("a release is told as a loss")
		default:
		}
	})
}

func TestDoWithPermits(t *testing.T) {
	limited(t, 4, func(t *testing.T, process func(...tier.MutexOption) *tier.Semaphore, taken func() int) {
		mine := errors.New("mine")
		var work context.Context
		if err := process().Do(soon(t), 3, func(ctx context.Context) error {
			if n := taken(); n != 3 {
				t.Errorf("%d permits are taken, want 3", n)
			}
			work = ctx
			return mine
		}); !errors.Is(err, mine) || work.Err() == nil {
			t.Errorf("got %v, and the context says %v", err, work.Err())
		}
	})
}

func TestShutdownOfASemaphore(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks := process(t, srv)
		s := locks.Semaphore(pool, 2)
		two := take(t, s, 2)
		waiting := ask(soon(t), s, 1).waits(t)
		over := make(chan error)
		go func() { over <- locks.Shutdown(soon(t)) }()
		<-waiting.done
		_, late := s.Acquire(soon(t), 1)
		for _, err := range []error{waiting.err, late} {
			if !errors.Is(err, tier.ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
		synctest.Wait()
		select {
		case err := <-over:
			t.Errorf("Shutdown did not wait for the permits: %v", err)
		default:
		}
		giveBack(t, two)
		if err := <-over; err != nil {
			t.Error(err)
		}
		if left := srv.Queue(queueOf(pool)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// What another program puts below leases counts, as that of Curator does.
func TestPermitsOfOthersCount(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		s := zkProcess(t, srv).Semaphore(pool, 4)
		giveBack(t, take(t, s, 1))
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		theirs, err := conn.Create(pool+"/leases/_c_00000000-0000-4000-8000-000000000000-lease-", nil,
			zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
		if err == nil {
			_, err = conn.Create(pool+"/leases/x", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting := ask(soon(t), s, 3).waits(t)
		if err := conn.Delete(theirs, -1); err != nil {
			t.Fatal(err)
		}
		giveBack(t, waiting.served(t))
		if err := conn.Delete(pool+"/leases/x", -1); err != nil {
			t.Fatal(err)
		}
		zkWantNothing(t, srv)
	})
}

// Whoever loses the turn while it waits queues again, though nothing becomes free.
func TestTurnThatIsDeleted(t *testing.T) {
	zkLimited(t, 1, func(t *testing.T, srv *zktest.Server, process func(...tier.MutexOption) *tier.Semaphore) {
		one := take(t, process(), 1)
		waiting := ask(soon(t), process(), 1).waits(t)
		time.Sleep(sessionTimeout / 3) // by then its end is watched
		turn := srv.Children(pool + "/locks")[0]
		srv.OnChange(nil)
		conn := outsider(t, "127.0.0.1:2181", srv.DialTimeout)
		if err := conn.Delete(pool+"/locks/"+turn, -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if now := srv.Children(pool + "/locks"); len(now) != 1 || now[0] == turn {
			t.Errorf("a second later those who queue are %v, want one more turn", now)
		}
		giveBack(t, one)
		giveBack(t, waiting.served(t))
	})
}

// A turn that was traded for permits is no lock that was lost.
func TestTurnThatIsTradedIsNoLoss(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		var log bytes.Buffer
		warnings := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		s := zkProcess(t, srv, zklock.WithLogger(warnings)).Semaphore(pool, 1)
		one := take(t, zkProcess(t, srv).Semaphore(pool, 1), 1)
		waiting := ask(soon(t), s, 1).waits(t)
		time.Sleep(sessionTimeout / 3) // by then the end of the turn is watched
		giveBack(t, one)
		giveBack(t, waiting.served(t))
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("logged: %s", log.String())
		}
	})
}

// Whoever leaves in the moment in which it is served leaves its permits to others.
func TestContextThatEndsWhenPermitsCome(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		s, begin := process(t, srv).Semaphore(pool, 2), time.Now()
		var thaw func()
		if err := tier.LeaveServed(soon(t), s, 2, func() { thaw = srv.Freeze() }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v to leave while the server is silent", took)
		}
		thaw()
		synctest.Wait()
		if left := srv.Queue(queueOf(pool)); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// What is left of many permits goes with one look and one write.
func TestManyPermitsWhoseAnswerIsLostGoTogether(t *testing.T) {
	const many = 1000
	for _, lost := range []string{"of the exchange", "of the release", "of the release, which is not executed", "of a release without connection"} {
		t.Run(lost, func(t *testing.T) {
			zkBubble(t, func(t *testing.T, srv *zktest.Server) {
				s := zkProcess(t, srv).Semaphore(pool, many)
				if err := s.Do(soon(t), 1, func(context.Context) error { return nil }); err != nil { // the path is there
					t.Fatal(err)
				}
				requests := make(map[string]int)
				strike := func(dir zktest.Direction, then func()) {
					struck := false
					srv.Intercept(func(f *zktest.Frame) zktest.Action {
						if f.Dir == zktest.Request && !heartbeat(f) && f.Op != "connect" {
							requests[f.Op]++
						}
						if !struck && f.Op == "multi" && f.Dir == dir && !heartbeat(f) {
							struck = true
							clear(requests)
							then()
							return zktest.Cut
						}
						return zktest.Pass
					})
				}
				if lost == "of the exchange" {
					ctx, cancel := context.WithCancel(soon(t))
					strike(zktest.Reply, cancel)
					if _, err := s.Acquire(ctx, many); !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
				} else {
					permits, err := s.Acquire(soon(t), many)
					if err != nil {
						t.Fatal(err)
					}
					switch lost {
					case "of the release":
						strike(zktest.Reply, func() {})
					case "of the release, which is not executed":
						strike(zktest.Request, func() {})
					default:
						strike(0, func() {}) // none: there is no connection
						member := srv.Member("127.0.0.1:2181")
						member.Refuse()
						srv.CutAll()
						synctest.Wait()
						time.AfterFunc(time.Second, member.Accept)
					}
					if err := permits.Release(); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(sessionTimeout / 2)
				if n := len(srv.Children(pool + "/leases")); n != 0 {
					t.Errorf("%d permits are left", n)
				}
				sum := 0
				for _, n := range requests {
					sum += n
				}
				if sum > 20 {
					t.Errorf("%d requests: %v", sum, requests)
				}
			})
		})
	}
}

// permitLease is for how long what a process has is its own if its heartbeat is not answered.
const permitLease = sessionTimeout - sessionTimeout/3

// unrenewed lets all through but what renews the lease of a session, and what hook says of its other frames.
func unrenewed(srv *zktest.Server, session int64, hook func(*zktest.Frame) zktest.Action) {
	srv.Intercept(func(f *zktest.Frame) zktest.Action {
		switch {
		case f.Session != session:
			return zktest.Pass
		case f.Dir == zktest.Request && f.Op == "sync":
			return zktest.Throttled
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
			if f.Dir == zktest.Reply && f.Op == "multi" && f.First == "delete" {
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
					if f.Session == id && f.Dir == zktest.Request && f.Op == "setData" && f.NthOfSession == 1 {
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

// exchanges lets act decide what becomes of the first transaction of a session that takes permits, in one direction.
func exchanges(srv *zktest.Server, session int64, dir zktest.Direction, act func() zktest.Action) {
	var once sync.Once
	srv.Intercept(func(f *zktest.Frame) (a zktest.Action) {
		if f.Session == session && f.Dir == dir && f.Op == "multi" && strings.HasPrefix(f.Path, pool+"/locks/") {
			once.Do(func() { a = act() })
		}
		return a
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
