package zknode_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/zknode"
	"github.com/tierlock/tierlock/zklock/zktest"
)

const limits = "/limits/x"

// process.of returns a semaphore with this number of permits.
func (p process) of(t *testing.T, permits int) second.Semaphore {
	t.Helper()
	return need.Get(zknode.Tier(p.Client).Semaphore(limits, permits, second.Options{}))(t)
}

// The function wanting returns a demand for k permits: it takes k permits or none.
func wanting(k int) *second.Demand {
	return &second.Demand{Take: func(free int) int {
		if free < k {
			return 0
		}
		return k
	}}
}

// A taking is a call of Acquire in a new goroutine.
type taking struct {
	sem     second.Semaphore
	done    chan struct{}
	permits []second.Permit // permits and err are valid when done is closed
	err     error
}

// The function take starts to acquire k permits. The call gives up after a minute.
func take(t *testing.T, sem second.Semaphore, k int) *taking {
	t.Helper()
	return takeAs(t, sem, wanting(k))
}

func takeAs(t *testing.T, sem second.Semaphore, d *second.Demand) *taking {
	t.Helper()
	ctx := within(t, time.Minute)
	w := &taking{sem: sem, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.permits, w.err = sem.Acquire(ctx, d)
	}()
	synctest.Wait()
	return w
}

// taking.waits fails the test unless the call still waits when the bubble is idle.
func (w *taking) waits(t *testing.T) {
	t.Helper()
	if synctest.Wait(); closed(w.done) {
		t.Fatalf("Acquire: got %d permits, %v; want it to wait", len(w.permits), w.err)
	}
}

func (w *taking) taken(t *testing.T) []second.Permit {
	t.Helper()
	<-w.done
	need.OK(t, w.err)
	return w.permits
}

func (w *taking) failed() error {
	<-w.done
	return w.err
}

// taking.gives waits until the permits are acquired, and releases them.
func (w *taking) gives(t *testing.T) {
	t.Helper()
	wantErr(t, "Release", w.sem.Release(w.taken(t)), nil)
}

// The function calls returns the two ways to acquire a permit: Acquire and TryAcquire.
func calls(t *testing.T, sem second.Semaphore) map[string]func() ([]second.Permit, error) {
	return map[string]func() ([]second.Permit, error){
		"Acquire":    func() ([]second.Permit, error) { return sem.Acquire(t.Context(), wanting(1)) },
		"TryAcquire": func() ([]second.Permit, error) { return sem.TryAcquire(t.Context(), 1) },
	}
}

// wantTaken fails the test unless exactly want permits are taken on the server and no process queues.
func wantTaken(t *testing.T, s *zktest.Server, want int) {
	t.Helper()
	synctest.Wait()
	need.Len(t, "taken", s.Children(limits+"/leases"), want)
	need.Empty(t, "the queue", s.Children(limits+"/locks"))
}

// The function trades reports whether a frame belongs to a transaction that exchanges a place in the queue for permits.
func trades(f *zktest.Frame) bool {
	return f.Op == "multi" && f.First == "delete" && strings.HasPrefix(f.Path, limits+"/locks/")
}

// The function throttle rejects the requests that renew leases.
func throttle(f *zktest.Frame) zktest.Action {
	if f.Dir == zktest.Request && f.Op == "sync" {
		return zktest.Throttled
	}
	return zktest.Pass
}

const trip = 10 * time.Millisecond

// A costs function checks how long f takes and which requests f sends.
type costs func(what string, trips time.Duration, want string, f func())

// The function distant runs f with a server that is half a round trip away. f also gets a semaphore whose parents exist.
func distant(t *testing.T, permits int, f func(t *testing.T, s *zktest.Server, sem second.Semaphore, costs costs)) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: trip / 2})
		sem := start(t, s).of(t, permits)
		take(t, sem, 1).gives(t) // creates the parents
		tr := record(s)
		f(t, s, sem, func(what string, trips time.Duration, want string, f func()) {
			t.Helper()
			time.Sleep(4 * trip) // by then, all calls that have to wait are waiting
			tr.take()
			begun := time.Now()
			f()
			need.Equal(t, what, time.Since(begun), trips*trip)
			need.Equal(t, "requests of "+what, strings.Join(tr.take(), " "), want)
		})
	})
}

// The cost of a call is the same for any number of permits.
func TestRoundTripsOfASemaphore(t *testing.T) {
	distant(t, 10, func(t *testing.T, s *zktest.Server, sem second.Semaphore, costs costs) {
		var permits []second.Permit
		release := map[int]string{1: "delete", 10: "multi"}
		for _, k := range []int{1, 10} {
			// A create makes the place in the queue. A multiRead reads the queue and the permits. A multi takes all permits and removes the
			// place.
			costs(fmt.Sprintf("Acquire of %d", k), 2, "create multiRead multi", func() { permits = take(t, sem, k).taken(t) })
			costs(fmt.Sprintf("Release of %d", k), 1, release[k], func() { wantErr(t, "Release", sem.Release(permits), nil) })
		}
		const glance = "getChildren2 getChildren2 getData"
		costs("TryAcquire", 3, glance+" create multiRead multi", func() { permits = need.Get(sem.TryAcquire(t.Context(), 10))(t) })
		other := start(t, s).of(t, 10)
		refused := func() { wantErr(t, "TryAcquire", need.ErrOf(other.TryAcquire(t.Context(), 1)), second.ErrLocked) }
		costs("TryAcquire with none free", 1, glance, refused)
		wantErr(t, "Release", sem.Release(permits[1:]), nil)
		waiting := take(t, sem, 10)
		costs("TryAcquire behind a waiter", 1, glance, refused)
		wantErr(t, "Release", sem.Release(permits[:1]), nil)
		waiting.gives(t)
	})
}

// The first contender counts the permits that others release. It reads them again only if it wants permits for several goroutines, or if
// there are too many permits.
func TestRoundTripsOfPermitsFromOneProcessToAnother(t *testing.T) {
	const look = "getChildren2 getData "
	type row struct {
		permits, wants int
		several        int   // several goroutines want one permit each: 1: from the start, 2: later
		releases       []int // the permits are released in this many steps, each with so many permits
		trips          time.Duration
		requests       string // requests that are sent from the last release on
		taken          int
	}
	need.Each(t, map[string]row{
		"one":                       {10, 1, 0, []int{1}, 2, "delete multi", 1},
		"all":                       {10, 10, 0, []int{10}, 2, "multi multi", 10},
		"one by one":                {10, 3, 0, []int{1, 1, 1}, 2, "delete multi", 3},
		"for several":               {10, 5, 1, []int{2}, 3, "multi " + look + "multi", 2},
		"for several later waiters": {10, 5, 2, []int{2}, 3, "multi " + look + "multi", 2},
		"of as many as are heard":   {16, 1, 0, []int{1}, 2, "delete multi", 1},
		"of more than are heard":    {17, 1, 0, []int{1}, 3, "delete " + look + "multi", 1},
		"of what is by list heard":  {17, 2, 0, []int{1, 1}, 3, "delete " + look + "multi", 2},
	}, func(t *testing.T, c row) {
		distant(t, c.permits, func(t *testing.T, s *zktest.Server, sem second.Semaphore, costs costs) {
			permits := take(t, sem, c.permits).taken(t)
			var several atomic.Bool
			several.Store(c.several == 1)
			p := start(t, s)
			waiting := takeAs(t, p.of(t, c.permits), &second.Demand{Take: func(free int) int {
				if free < c.wants && !several.Load() {
					return 0
				}
				return min(free, c.wants)
			}})
			time.Sleep(4 * trip)
			if c.several == 1 {
				need.AtMost(t, "listeners", p.Listeners(), 4) // it must not listen for the events of each permit
			}
			several.Store(c.several > 0)
			release := func(k int) {
				wantErr(t, "Release", sem.Release(permits[:k]), nil)
				permits = permits[k:]
			}
			last := len(c.releases) - 1
			for _, k := range c.releases[:last] {
				time.Sleep(4 * trip)
				release(k)
			}
			costs("the hand-over", c.trips, c.requests, func() {
				release(c.releases[last])
				waiting.taken(t)
			})
			need.Equal(t, "permits", len(waiting.permits), c.taken)
			waiting.gives(t)
			need.Equal(t, "listeners", p.Listeners(), 0)
		})
	})
}

// Over a connection of the program, the client listens for changes of the list. Otherwise each permit would need a call of the client
// library, and a goroutine.
func TestPermitsOfOthersAreHeardByListOverAConnectionMadeElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		one := take(t, start(t, s).of(t, 1), 1)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case trades(f):
				s.Intercept(nil)
			case is("getData", zktest.Request)(f) && f.Session == p.session && strings.HasPrefix(f.Path, limits+"/leases/"):
				t.Errorf("%v before it has permits", f)
			}
			return zktest.Pass
		})
		waiting := take(t, p.of(t, 1), 1)
		one.gives(t)
		waiting.gives(t)
	})
}

// If this process may write to the path, it stores the number of permits there. From then on, that number applies.
func TestNumberOfPermitsIsKeptWithThePath(t *testing.T) {
	type row struct {
		content, after string
		permits        int      // the number of permits that exists then
		want           []string // texts in the error; none: there is no error
	}
	each(t, map[string]row{
		"nothing":        {"", "tierlock permits=3", 3, nil},
		"ours":           {"tierlock permits=3", "tierlock permits=3", 3, nil},
		"foreign":        {"10.0.0.7", "10.0.0.7", 3, nil},
		"another number": {"tierlock permits=10", "tierlock permits=10", 10, nil},
		"no number":      {"tierlock permits=0", "tierlock permits=0", 3, []string{"tierlock permits=0", "SetPermits"}},
		"kazoo's":        {"3", "3", 3, []string{"kazoo", "another path"}},
	}, func(t *testing.T, s *zktest.Server, c row) {
		conn := raw(t, s)
		put(t, conn, 0, "/limits", limits)
		need.Get(conn.Set(limits, []byte(c.content), -1))(t) // gives the path another version than its first one
		sem := start(t, s).of(t, 3)
		for call, take := range calls(t, sem) {
			permits, err := take()
			if len(c.want) == 0 {
				wantErr(t, call, err, nil)
				wantErr(t, "Release", sem.Release(permits), nil)
				continue
			}
			need.That(t, call+": no error", err != nil)
			need.Has(t, call, fmt.Sprint(err), c.want...)
			wantTaken(t, s, 0)
		}
		need.Equal(t, "content of the path", content(s, limits), c.after)
		need.Equal(t, "permits", sem.Permits(), c.permits)
	})
}

func TestThoseWhoHavePermitsAreShownWithoutTheNumberOfAll(t *testing.T) {
	each(t, map[string]error{"unreadable": zk.ErrNoAuth, "gone": zk.ErrNoNode}, func(t *testing.T, s *zktest.Server, refusal error) {
		sem := start(t, s).of(t, 3)
		take(t, sem, 2).taken(t)
		meet(s, func(f *zktest.Frame) bool { return is("getData", zktest.Request)(f) && f.Path == limits }, zktest.Error(refusal))
		all := need.Get(sem.Contenders(t.Context()))(t)
		need.That(t, fmt.Sprintf("%+v, want 2 permits of an unknown number", all), len(all) == 1 && all[0].Permits == 2 && all[0].Of == 0)
		meet(s, func(f *zktest.Frame) bool {
			return f.Dir == zktest.Request && strings.HasPrefix(f.Path, limits+"/leases/")
		}, zktest.Error(refusal))
		need.Equal(t, "shown, whose owner is not", len(need.Get(sem.Contenders(t.Context()))(t)), map[error]int{zk.ErrNoAuth: 2}[refusal])
	})
}

// A path that was created without a number may be removed at any time. SetPermits creates it again.
func TestSetPermitsMakesThePath(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).of(t, 3)
		for _, n := range []int{2, 4} {
			wantErr(t, "SetPermits", sem.SetPermits(t.Context(), n), nil)
			need.Equal(t, "content of the path", content(s, limits), fmt.Sprintf("tierlock permits=%d", n))
		}
		take(t, sem, 4).gives(t)
	})
}

func TestNumberOfPermitsThatMayNotBeSet(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/limits", limits)
		protect(t, conn, limits, zk.PermAll&^zk.PermWrite)
		err := start(t, s).of(t, 3).SetPermits(t.Context(), 2)
		wantErr(t, "SetPermits", err, zk.ErrNoAuth)
		need.Has(t, "the error", fmt.Sprint(err), "WRITE", limits)
	})
}

// A process finds no number at the path. If another process stores one before the write, that number must not be overwritten.
func TestNumberOfPermitsOfAnotherProcessIsNotOverwritten(t *testing.T) {
	for call, want := range map[string]string{
		"Acquire":    "<nil>", // it reads again
		"TryAcquire": "another process has changed the number of permits",
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			const theirs = "tierlock permits=4"
			conn, sem := raw(t, s), start(t, s).of(t, 3)
			put(t, conn, 0, "/limits", limits)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Request && f.Op == "setData" && f.Session != conn.SessionID() {
					wantErr(t, "Set", need.ErrOf(conn.Set(limits, []byte(theirs), -1)), nil)
				}
				return zktest.Pass
			})
			permits, err := calls(t, sem)[call]()
			need.Has(t, call, fmt.Sprint(err), want)
			need.Equal(t, call+": content of the path", content(s, limits), theirs)
			wantTaken(t, s, len(permits))
			if err == nil {
				need.Equal(t, "permits", sem.Permits(), 4)
				wantErr(t, "Release", sem.Release(permits), nil)
			}
		})
	}
}

// If a process may not take permits, its call returns an error and gives up its place in the queue.
func TestPermitsThatMayNotBeTaken(t *testing.T) {
	each(t, map[string]string{
		"no permission to take any": limits + "/leases", "no permission to make their parent": limits,
	}, func(t *testing.T, s *zktest.Server, closed string) {
		conn := raw(t, s)
		put(t, conn, 0, "/limits", limits, limits+"/locks", closed)
		protect(t, conn, closed, zk.PermAll&^zk.PermCreate)
		for call, take := range calls(t, start(t, s).of(t, 3)) {
			if _, err := take(); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "CREATE") {
				t.Errorf("%s: got %v, want an error that names the missing permission", call, err)
			}
			wantTaken(t, s, 0)
		}
	})
}

// If an operator deletes one permit, only the holder of that permit learns of a loss.
func TestPermitThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		sem := p.of(t, 3)
		one := take(t, sem, 1).taken(t)
		name := s.Children(limits + "/leases")[0]
		two := take(t, sem, 2)
		awaitWatch()
		remove(t, raw(t, s), limits+"/leases/"+name)
		select {
		case <-one[0].Context().Done():
		case <-time.After(time.Second): // in virtual time
			t.Error("the holder does not know of the loss")
		}
		for _, other := range two.taken(t) {
			wantErr(t, "the context of another permit", other.Context().Err(), nil)
		}
		wantErr(t, "Release", sem.Release(one), second.ErrLost)
		two.gives(t)
		wantTaken(t, s, 0)
		wantLines(t, log, slog.LevelWarn, `lock lost" path=`+limits+" token=", 1)
	})
}

// Another program, such as Curator, may create children below leases. They count as permits.
func TestPermitsOfOthersCount(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, conn := start(t, s).of(t, 4), raw(t, s)
		take(t, sem, 1).gives(t)
		names := []string{limits + "/leases/_c_00000000-0000-4000-8000-000000000000-lease-0000000007", limits + "/leases/x"}
		put(t, conn, zk.FlagEphemeral, names...)
		waiting := take(t, sem, 3)
		waiting.waits(t)
		remove(t, conn, names[0])
		waiting.gives(t)
		remove(t, conn, names[1])
	})
}

// If a contender loses its place while it waits, it queues again, even if no permit becomes free.
func TestTurnThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).of(t, 1)
		one := take(t, sem, 1)
		waiting := take(t, start(t, s).of(t, 1), 1)
		awaitWatch()
		turn := s.Children(limits + "/locks")[0]
		remove(t, raw(t, s), limits+"/locks/"+turn)
		time.Sleep(time.Second)
		now := s.Children(limits + "/locks")
		need.That(t, fmt.Sprintf("a second later the queue is %v, want one more turn", now), len(now) == 1 && now[0] != turn)
		one.gives(t)
		waiting.gives(t)
	})
}

// The lease may end before the answer to the write that takes permits. Permits must not be taken then, because their loss would go
// unnoticed.
func TestPermitsAreNotTakenWithoutALease(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, p := start(t, s).of(t, 2), start(t, s)
		begun := time.Now() // when the lease of p began
		late := make(chan struct{})
		note := sync.OnceFunc(func() { close(late) })
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Session != p.session:
				return zktest.Pass
			case f.Dir == zktest.Reply && trades(f):
				note()
				return zktest.Delay(2 * time.Millisecond)
			}
			return throttle(f)
		})
		two := take(t, sem, 2)
		waiting := take(t, p.of(t, 2), 2)
		time.Sleep(time.Until(begun.Add(lease - time.Millisecond)))
		two.gives(t)
		<-late
		time.Sleep(time.Second)
		waiting.waits(t)
		need.Empty(t, "taken by one whose lease is over", s.Children(limits+"/leases"))
		s.Intercept(nil)
		need.That(t, "the permits are valid no more", waiting.taken(t)[0].ValidUntil().After(time.Now()))
		waiting.gives(t)
	})
}

// If an answer is lost, many permits may be left. One read and one write then remove all of them.
func TestManyPermitsWhoseAnswerIsLostGoTogether(t *testing.T) {
	const many = 1000
	for lost, stage := range map[string]zktest.Direction{
		"of the exchange":                          zktest.Reply,
		"of the release":                           zktest.Reply,
		"of the release, which is not executed":    zktest.Request,
		"of the release, while there is no server": 0, // no frame is affected
	} {
		t.Run(lost, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				sem := p.of(t, many)
				take(t, sem, 1).gives(t) // now the path exists
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var permits []second.Permit
				if lost != "of the exchange" {
					permits = take(t, sem, many).taken(t)
				}
				struck, requests := false, 0
				s.Intercept(func(f *zktest.Frame) zktest.Action {
					if f.Dir == zktest.Request && !heartbeat(f) {
						requests++
					}
					if struck || f.Op != "multi" || f.Dir != stage || heartbeat(f) {
						return zktest.Pass
					}
					struck, requests = true, 0
					cancel()
					return zktest.Cut
				})
				if permits == nil {
					wantErr(t, "Acquire", need.ErrOf(sem.Acquire(ctx, wanting(many))), context.Canceled)
				} else {
					if stage == 0 { // no frame is affected
						s.Member(addr).Refuse()
						s.CutAll()
						synctest.Wait()
						time.AfterFunc(time.Second, s.Member(addr).Accept)
					}
					wantErr(t, "Release", sem.Release(permits), nil)
				}
				time.Sleep(timeout)
				wantTaken(t, s, 0)
				need.AtMost(t, "requests", requests, 20)
			})
		})
	}
}

// The contender that is first is paused while it decides how many permits to take. If its lease ends in that time, it takes none.
func TestTurnWhoseLeaseRanOutTakesNothing(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).of(t, 2)
		s.OnChange(func(_ zktest.View, changes []zktest.Change) {
			for _, c := range changes {
				need.That(t, c.Path+" was taken without a lease", c.Op != "create" || !strings.HasPrefix(c.Path, limits+"/leases/"))
			}
		})
		s.Intercept(throttle)
		var first string
		w := takeAs(t, sem, &second.Demand{Take: func(int) int {
			if first == "" {
				first = s.Children(limits + "/locks")[0]
				time.Sleep(lease)
			}
			return 2
		}})
		time.Sleep(lease + time.Second)
		synctest.Wait()
		queue := s.Children(limits + "/locks")
		need.That(t, fmt.Sprintf("the queue is %v, want another turn in the place of %s", queue, first), len(queue) == 1 && queue[0] != first)
		s.OnChange(nil)
		s.Intercept(nil)
		w.gives(t)
	})
}

// The client library cannot decode the answer to the creation of a container. The client still takes the permits at once.
func TestPermitsOfAPathThatIsMissingAreTakenAtOnceOverAConnectionMadeElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, _ := attach(t, s)
		sem := p.of(t, 2)
		begun := time.Now()
		permits := need.Get(sem.TryAcquire(t.Context(), 2))(t)
		need.Equal(t, "it took", time.Since(begun), 0)
		wantErr(t, "Release", sem.Release(permits), nil)
		time.Sleep(10 * time.Minute)
		need.That(t, "the path is left", !s.Exists(limits))
	})
}

func TestParentsOfPermitsThatAreNotTakenAreNotMade(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, sem := raw(t, s), start(t, s).of(t, 2)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if trades(f) && f.Dir == zktest.Request {
				remove(t, conn, f.Path)
			}
			return zktest.Pass
		})
		need.That(t, "permits were taken without the turn", need.ErrOf(sem.TryAcquire(t.Context(), 2)) != nil)
		need.That(t, "the parent was made", !s.Exists(limits+"/leases"))
	})
}

// A path is worn when its sequence numbers will soon run out. The queue for permits then starts again at 0 after an acquisition.
func TestQueueForPermitsBeginsAnewWhenItIsWorn(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).of(t, 2)
		number := int32(-1)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if trades(f) && f.Dir == zktest.Request {
				number = numberOf(f.Path)
			}
			return zktest.Pass
		})
		for i, want := range []int32{0, wornFrom, 0} {
			w := take(t, sem, 2)
			w.taken(t)
			need.Equal(t, fmt.Sprintf("the number of turn %d", i), number, want)
			if i == 0 {
				s.SetSequence(limits+"/locks", wornFrom)
			}
			w.gives(t)
			time.Sleep(timeout)
		}
	})
}

// If the answer to the exchange is lost, the client reads the permits. If one of them is gone or unreadable, it adopts none of them.
func TestPermitsAreAdoptedWholeOrNotAtAll(t *testing.T) {
	type row struct {
		look func(t *testing.T, conn *zk.Conn, permit string) zktest.Action
		want error // nil: other permits are acquired
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
		put(t, conn, 0, "/limits", limits, limits+"/leases") // creates the path, so that only one kind of exchange is tried
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
		w := take(t, p.of(t, 2), 2)
		wantErr(t, "Acquire", w.failed(), c.want)
		time.Sleep(timeout / 2) // by then, the permits that were given up are gone
		need.Len(t, "taken", s.Children(limits+"/leases"), len(w.permits))
		need.Equal(t, "whether both permits are had", len(w.permits) == 2, w.err == nil)
		if w.err == nil {
			w.gives(t)
		}
		need.Equal(t, "still reaping", p.Reaping(), 0)
	})
}

// If the process may not write the number of permits, it tries that only once, and not with each acquisition.
func TestTheNumberThatMayNotBeWrittenIsNotWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, p := raw(t, s), start(t, s)
		put(t, conn, 0, "/limits")
		create(t, conn, limits, "", 0, zk.WorldACL(zk.PermAll&^zk.PermWrite))
		sem, tr := p.of(t, 2), record(s)
		for range 3 {
			take(t, sem, 2).gives(t)
		}
		writes := 0
		for _, op := range tr.take() {
			if op == "setData" {
				writes++
			}
		}
		need.Equal(t, "how often it was asked for", writes, 1)
	})
}

// takeThen starts an acquisition. The acquisition decides how many permits to take when the function decide is called.
func takeThen(t *testing.T, sem second.Semaphore) (w *taking, decide func()) {
	t.Helper()
	told := make(chan struct{})
	return takeAs(t, sem, &second.Demand{Take: func(int) int {
		<-told
		return 1
	}}), func() { close(told) }
}

// Permits may be read together with the place in the queue. That count is valid only if the contender was first at that time. Otherwise
// contenders ahead of it may still take permits.
func TestPermitsAreCountedInTurn(t *testing.T) {
	for name, between := range map[string]bool{"taken after the place in the queue": false, "taken between the place and the look": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				one := start(t, s).of(t, 1)
				take(t, one, 1).gives(t)
				first, decide := takeThen(t, one)
				p := start(t, s) // p does not know the path, so it sends one read after the other
				if between {
					s.Intercept(func(f *zktest.Frame) zktest.Action {
						if f.Session == p.session && is("getChildren2", zktest.Request)(f) && f.Path == limits+"/locks" {
							s.Intercept(nil)
							decide()
							<-first.done
						}
						return zktest.Pass
					})
				}
				other := take(t, p.of(t, 1), 1)
				if !between {
					decide()
				}
				other.waits(t)
				need.Equal(t, "taken", len(s.Children(limits+"/leases")), 1)
				first.gives(t)
				other.gives(t)
			})
		})
	}
}

// A count that was read for an earlier place in the queue is not valid for the next place.
func TestPermitsAreCountedInThisTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, other, p := raw(t, s), start(t, s).of(t, 1), start(t, s)
		sem := p.of(t, 1)
		take(t, sem, 1).gives(t)
		var theirs []second.Permit
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			switch {
			case f.Session != p.session:
			case theirs == nil && trades(f):
				remove(t, conn, f.Path)
				theirs = need.Get(other.TryAcquire(t.Context(), 1))(t)
			case theirs != nil && is("create", zktest.Reply)(f):
				s.Intercept(nil)
				return zktest.Cut // the client then looks for its place without reading the permits
			}
			return zktest.Pass
		})
		w := take(t, sem, 1)
		time.Sleep(time.Second)
		w.waits(t)
		need.Equal(t, "taken", len(s.Children(limits+"/leases")), 1)
		wantErr(t, "Release", other.Release(theirs), nil)
		w.gives(t)
	})
}

// The waiter notices each release of a permit before its periodic read, whatever happens to the watches.
func TestEveryPermitThatGoesIsHeard(t *testing.T) {
	const theirs = limits + "/leases/x"
	type row struct {
		perms int32
		meet  func(t *testing.T, s *zktest.Server, conn *zk.Conn, p process) // what happens before the permit is read; nil: nothing
		then  func(t *testing.T, s *zktest.Server, conn *zk.Conn, p process)
	}
	gone := func(t *testing.T, _ *zktest.Server, conn *zk.Conn, _ process) { remove(t, conn, theirs) }
	each(t, map[string]row{
		"while it is awaited":      {perms: zk.PermAll, then: gone},
		"one that may not be read": {perms: zk.PermAll &^ zk.PermRead, then: gone},
		"one that was written to": {perms: zk.PermAll, then: func(t *testing.T, s *zktest.Server, conn *zk.Conn, p process) {
			need.Get(conn.Set(theirs, []byte("x"), -1))(t)
			synctest.Wait()
			remove(t, conn, theirs)
		}},
		"while there is no connection": {perms: zk.PermAll, then: func(t *testing.T, s *zktest.Server, conn *zk.Conn, p process) {
			s.Cut(p.session)
			remove(t, conn, theirs)
		}},
		"between the list and the watch": {perms: zk.PermAll, meet: func(t *testing.T, s *zktest.Server, conn *zk.Conn, p process) {
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if is("getData", zktest.Request)(f) && f.Path == theirs {
					s.Intercept(nil)
					remove(t, conn, theirs)
				}
				return zktest.Pass
			})
		}},
	}, func(t *testing.T, s *zktest.Server, c row) {
		conn, p := raw(t, s), start(t, s)
		sem := p.of(t, 1)
		take(t, sem, 1).gives(t)
		create(t, conn, theirs, "", 0, zk.WorldACL(c.perms))
		if c.meet != nil {
			c.meet(t, s, conn, p)
		}
		w := take(t, sem, 1)
		if c.then != nil {
			w.waits(t)
			c.then(t, s, conn, p)
		}
		begun := time.Now()
		w.gives(t)
		wantWithin(t, 2*time.Second, "what became free", begun)
	})
}

// Another library may use one name for several permits, one after the other. A later permit must not be taken for an earlier one.
func TestPermitOfTheSameNameIsAnotherOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn, sem := raw(t, s), start(t, s).of(t, 3)
		take(t, sem, 1).gives(t)
		var all []string
		for _, name := range []string{"x", "y", "z"} {
			all = append(all, limits+"/leases/"+name)
		}
		put(t, conn, zk.FlagEphemeral, all...)
		w := take(t, sem, 2)
		remove(t, conn, all[0])
		put(t, conn, zk.FlagEphemeral, all[0])
		w.waits(t)
		need.Get(conn.Set(all[1], nil, -1))(t) // makes the waiter read again
		w.waits(t)
		remove(t, conn, all[1])
		w.waits(t)
		need.Equal(t, "taken", len(s.Children(limits+"/leases")), 2)
		remove(t, conn, all[2])
		w.gives(t)
		remove(t, conn, all[0])
	})
}

// If the server refuses to answer the read of the permits, the read is repeated, at growing intervals.
func TestLookAtPermitsThatFailsIsRepeatedLater(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, p := start(t, s).of(t, 1), start(t, s)
		take(t, sem, 1).gives(t)
		looks := 0
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == p.session && is("getChildren2", zktest.Request)(f) && f.Path == limits+"/leases" {
				if looks++; looks < 1000 {
					return zktest.Throttled
				}
			}
			return zktest.Pass
		})
		w := take(t, p.of(t, 1), 1)
		time.Sleep(2 * time.Second)
		w.waits(t)
		need.Between(t, "looks within two seconds", looks, 2, 20)
		s.Intercept(nil)
		w.gives(t)
	})
}

// A caller may leave with an error while a call of the client library continues. The error must not change when that call returns.
func TestEndOfAWaitForPermitsSaysWhyItsLookFailed(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, other := start(t, s).of(t, 1), start(t, s).of(t, 1)
		held := take(t, sem, 1)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if is("getChildren2", zktest.Request)(f) && f.Path == limits+"/leases" {
				return zktest.Throttled
			}
			return zktest.Pass
		})
		said := 0
		for range 20 {
			_, err := other.Acquire(within(t, time.Second), wanting(1))
			wantErr(t, "Acquire", err, context.DeadlineExceeded)
			if strings.Contains(fmt.Sprint(err), "list "+limits+"/leases") { // not if the list was read together with the place
				said++
			}
		}
		need.Between(t, "errors that say why", said, 10, 20)
		s.Intercept(nil)
		held.gives(t)
		take(t, other, 1).gives(t)
	})
}
