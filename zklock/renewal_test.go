package zklock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

const (
	wornFrom = 1 << 30 // number from which on a path is to be made anew
	wornStep = 1 << 20 // after how many it is tried again
)

// wear makes the next node of the lock have this number.
func (p process) wear(t *testing.T, s *zktest.Server, number int32) {
	t.Helper()
	n := p.acquire(t)
	s.SetSequence(path, number)
	wantErr(t, "Release", n.Release(), nil)
	synctest.Wait()
}

func numberOf(node string) int32 {
	n, _ := strconv.Atoi(node[len(node)-10:])
	return int32(n)
}

// numbers records the numbers of the lock nodes that are created, by session.
func numbers(s *zktest.Server) (taken func(session int64) []int32) {
	var mu sync.Mutex // guards the field below
	bySession := make(map[int64][]int32)
	s.OnChange(func(_ zktest.View, changes []zktest.Change) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range changes {
			if c.Op == "create" && strings.Contains(c.Path, "-lock-") {
				bySession[c.Session] = append(bySession[c.Session], numberOf(c.Path))
			}
		}
	})
	return func(session int64) []int32 {
		mu.Lock()
		defer mu.Unlock()
		return bySession[session]
	}
}

// requeue gives n up and queues again.
func (p process) requeue(t *testing.T, n *zklock.Node) *request {
	t.Helper()
	return submit(func() (*zklock.Node, error) { return n.Requeue(t.Context()) })
}

func TestWornPathBeginsAnewAtTheReleaseOfTheOnlyOne(t *testing.T) {
	each(t, map[string]func(p process, n *zklock.Node) (*zklock.Node, error){
		"release": func(p process, n *zklock.Node) (*zklock.Node, error) {
			n.Release()
			return p.lock.Acquire(context.Background())
		},
		"requeue": func(_ process, n *zklock.Node) (*zklock.Node, error) { return n.Requeue(context.Background()) },
		"release, and nobody wants it": func(p process, n *zklock.Node) (*zklock.Node, error) {
			n.Release()
			synctest.Wait()
			return p.lock.TryAcquire(context.Background())
		},
	}, func(t *testing.T, s *zktest.Server, giveUp func(p process, n *zklock.Node) (*zklock.Node, error)) {
		p := start(t, s)
		p.wear(t, s, wornFrom)
		n, begun := p.acquire(t), time.Now()
		next, err := giveUp(p, n)
		if err != nil {
			t.Fatal(err)
		}
		if got := numberOf(next.Path()); got != 0 || next.Token() <= n.Token() || time.Since(begun) > 0 {
			t.Errorf("number %d, token %d after %d, after %v", got, next.Token(), n.Token(), time.Since(begun))
		}
		next.Release()
	})
}

func TestPathThatIsNotWornYetIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		p.wear(t, s, wornFrom-1)
		tr := record(s)
		n := p.acquire(t)
		if closed(n.Contested()) {
			t.Error("contested by nobody")
		}
		synctest.Wait()
		tr.take()
		n.Release()
		if got := tr.take(); len(got) != 1 || !s.Exists(path) {
			t.Errorf("released with %v, want a delete; the path is there: %t", got, s.Exists(path))
		}
	})
}

// Whoever waits outside the queue cannot be seen.
func TestNodeOfAWornPathIsContestedForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p := start(t, s)
		time.Sleep(time.Hour)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		tr := record(s)
		<-n.Contested()
		if got := n.ContestedFor(); got < time.Minute || len(tr.take()) > 0 {
			t.Errorf("contested for %v; looked to find out", got)
		}
		n.Release()
	})
}

// obstacles are what keeps a worn path from being deleted, and how it is done away with.
var obstacles = map[string]struct {
	acl  []zk.ACL // of the parent of the path
	put  func(t *testing.T, conn *zk.Conn)
	lift func(conn *zk.Conn)
}{
	"a plain path": {
		put: func(t *testing.T, conn *zk.Conn) { put(t, conn, 0, path) },
	},
	"a container of somebody else": {
		put: func(_ *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
		},
	},
	"no permission": {
		acl:  zk.WorldACL(zk.PermAll &^ zk.PermDelete),
		put:  func(*testing.T, *zk.Conn) {},
		lift: func(conn *zk.Conn) { conn.SetACL("/locks", zk.WorldACL(zk.PermAll), -1) },
	},
	"a foreign child": {
		put: func(t *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			put(t, conn, 0, path+"/readme")
		},
		lift: func(conn *zk.Conn) { conn.Delete(path+"/readme", -1) },
	},
	"a lock below": {
		put: func(t *testing.T, conn *zk.Conn) {
			conn.CreateContainer(path, []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
			conn.CreateContainer(path+"/y", []byte(ours), zk.FlagContainer, zk.WorldACL(zk.PermAll))
		},
		lift: func(conn *zk.Conn) { conn.Delete(path+"/y", -1) },
	},
}

func TestWornPathThatCannotBeDeletedIsQueuedOnAndTriedAgainLater(t *testing.T) {
	for name, obstacle := range obstacles {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				if obstacle.acl == nil {
					obstacle.acl = zk.WorldACL(zk.PermAll)
				}
				if _, err := conn.Create("/locks", nil, 0, obstacle.acl); err != nil {
					t.Fatal(err)
				}
				obstacle.put(t, conn)
				p, log := startLogged(t, s)
				p.wear(t, s, wornFrom+3)

				n, begun := p.acquire(t), time.Now()
				for i := range int32(10) {
					if got := numberOf(n.Path()); got != wornFrom+3+i {
						t.Fatalf("turn %d with number %d", i, got)
					}
					n = p.requeue(t, n).granted(t)
				}
				wantWithin(t, 0, "ten turns", begun)
				if got := log.String(); strings.Count(got, "sequence numbers") != 1 || !strings.Contains(got, "path="+path+" ") {
					t.Errorf("logged:\n%s", got)
				}
				n.Release()
				if obstacle.lift == nil {
					return
				}
				obstacle.lift(conn)
				n = p.acquire(t)
				s.SetSequence(path, wornFrom+wornStep-1)
				for _, want := range []int32{wornFrom + wornStep - 1, wornFrom + wornStep, 0, wornFrom, 0} {
					if want == wornFrom {
						s.SetSequence(path, wornFrom)
					}
					n = p.requeue(t, n).granted(t)
					if got := numberOf(n.Path()); got != want {
						t.Errorf("number %d, want %d", got, want)
					}
				}
				n.Release()
			})
		})
	}
}

// The other one has deleted the path and made it anew before we look.
func TestNewPathIsQueuedOnThoughItIsInUse(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Session == p.session && f.Dir == zktest.Request && f.Op == "sync" && !s.Exists(n.Path()) {
				return zktest.Delay(10 * time.Millisecond)
			}
			return zktest.Pass
		})
		r := p.requeue(t, n)
		last := q.requeue(t, other.granted(t)).granted(t)
		time.Sleep(100 * time.Millisecond)
		if names := s.Children(path); len(names) != 2 || numberOf(last.Path()) != 0 {
			t.Errorf("the queue is %q", names)
		}
		last.Release()
		r.granted(t).Release()
	})
}

// No event comes, as after a reconnect whose watches could not be set.
func TestWornPathThatDrainsUnseenBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, q := start(t, s), start(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		other := q.queue(t.Context())
		r := p.requeue(t, n)
		s.Intercept(func(f *zktest.Frame) zktest.Action {
			if f.Op == "event" && f.Session == p.session || f.Session == q.session && f.Dir == zktest.Request && f.Op == "sync" {
				return zktest.Drop
			}
			return zktest.Pass
		})
		other.granted(t).Release()
		begun := time.Now()
		r.await(t)
		if d := time.Since(begun); d > timeout/4 || numberOf(r.node.Path()) != 0 {
			t.Errorf("number %d after %v", numberOf(r.node.Path()), d)
		}
		r.node.Release()
	})
}

// Another library's contenders do not step aside, and a holder may take long.
func TestWaitOutsideAWornPathEndsAfterASessionTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		p, log := startLogged(t, s)
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
		remove(t, conn, foreign)
		begun := time.Now()
		p.requeue(t, r.granted(t)).granted(t).Release()
		if d := time.Since(begun); d > 0 || p.Watchers(path) > 0 {
			t.Errorf("went outside again, for %v; %d watchers", d, p.Watchers(path))
		}
	})
}

func TestWaitOutsideAWornPathEndsWithContextAndClient(t *testing.T) {
	type row struct {
		do   func(p process, cancel func())
		want error
	}
	each(t, map[string]row{
		"context": {func(_ process, cancel func()) { cancel() }, context.Canceled},
		"client":  {func(p process, _ func()) { p.Close() }, zklock.ErrClosed},
	}, func(t *testing.T, s *zktest.Server, end row) {
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
			if f.Op == "event" { // so that the path is not made anew yet
				return zktest.Drop
			}
			return zktest.Pass
		})
		remove(t, conn, foreign)
		if n, err = p.lock.TryAcquire(t.Context()); err != nil || time.Since(begun) > 0 {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		n.Release()
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
		p, log := startLogged(t, s)
		p.wear(t, s, wornFrom)
		n := p.acquire(t)
		meetOnce(s, is("sync", zktest.Request), zktest.Cut)
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
			if f.Dir == zktest.Request && f.Session == p.session && f.Path == path {
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

// A turnstile stands before the server and lets requests through one by one, so that a test decides in which order
// those of different sessions take effect.
type turnstile struct {
	mu      sync.Mutex // guards the field below
	waiting map[int64]chan struct{}
}

func (d *turnstile) hook(f *zktest.Frame) zktest.Action {
	if f.Dir == zktest.Request && !heartbeat(f) {
		pass := make(chan struct{})
		d.mu.Lock()
		d.waiting[f.Session] = pass
		d.mu.Unlock()
		<-pass
	}
	return zktest.Pass
}

// next lets through a request of one of the sessions that have any: that of the same as before, or, if deviate is set,
// of the one after it. It reports whether there was none, and whether there was a choice.
func (d *turnstile) next(last *int64, deviate bool) (none, choice bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sessions []int64
	for s := range d.waiting {
		sessions = append(sessions, s)
	}
	if len(sessions) == 0 {
		return true, false
	}
	slices.Sort(sessions)
	i, same := slices.BinarySearch(sessions, *last)
	if deviate && same {
		i++
	}
	*last = sessions[i%len(sessions)]
	close(d.waiting[*last])
	delete(d.waiting, *last)
	return false, len(sessions) > 1 && same
}

// TestWornPathInEveryInterleaving runs processes that take turns on a path about to wear out, with one order of their
// requests after the other: a process goes on until it has to wait, but for a few places, any few, where another one
// comes between.
func TestWornPathInEveryInterleaving(t *testing.T) {
	for _, tt := range []struct {
		number    int32 // of the first turn that counts
		processes int
		switches  int
	}{
		{wornFrom, 2, 3},     // all in turn find that the path is worn
		{wornFrom - 1, 2, 2}, // one is in the queue with a number that is not
		{wornFrom - 1, 3, 1},
	} {
		t.Run(fmt.Sprintf("%d from %d", tt.processes, tt.number), func(t *testing.T) {
			t.Parallel()
			runs := 0
			var explore func(at []int)
			explore = func(at []int) {
				choices := interleave(t, tt.number, tt.processes, at)
				if runs++; len(at) == tt.switches || t.Failed() {
					return
				}
				from := 0
				if len(at) > 0 {
					from = at[len(at)-1] + 1
				}
				for i := from; i < choices && !t.Failed(); i++ {
					explore(append(slices.Clone(at), i))
				}
			}
			explore(nil)
			t.Logf("%d interleavings", runs)
		})
	}
}

// interleave runs one order of requests, which deviates at these choices, and returns how many there were.
func interleave(t *testing.T, number int32, processes int, at []int) (choices int) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		var all []process
		for range processes {
			all = append(all, start(t, s))
		}
		all[0].wear(t, s, number)
		taken, begun := numbers(s), time.Now()
		d := &turnstile{waiting: make(map[int64]chan struct{})}
		s.Intercept(d.hook)
		defer s.Intercept(nil)

		var left atomic.Int64
		work := oneAtATime(t)
		for _, p := range all {
			left.Add(1)
			go func() {
				defer left.Add(-1)
				if err := takeTurns(t.Context(), p.lock, work); err != nil {
					t.Error(err)
				}
			}()
		}
		var last int64
		for idle := 0; idle < 20; {
			synctest.Wait()
			none, choice := d.next(&last, slices.Contains(at, choices))
			switch {
			case none:
				idle++
				time.Sleep(time.Millisecond)
			case choice:
				choices++
				idle = 0
			default:
				idle = 0
			}
		}
		if left.Load() > 0 || time.Since(begun) > time.Second {
			t.Errorf("%d processes are not through after %v", left.Load(), time.Since(begun))
		}
		for _, p := range all {
			got := taken(p.session)
			worn := slices.DeleteFunc(slices.Clone(got), func(n int32) bool { return n < wornFrom })
			if len(worn) > 1 || got[len(got)-1] > 100 {
				t.Errorf("a process had the numbers %d", got)
			}
		}
		if wantEmpty(t, s); t.Failed() {
			t.Fatalf("switched at %v of %d", at, choices)
		}
	})
	return choices
}

// oneAtATime returns the work of an owner, which takes a while and finds out if somebody else is at it.
func oneAtATime(t *testing.T) func() {
	var owners atomic.Int64
	return func() {
		if n := owners.Add(1); n > 1 {
			t.Errorf("%d owners", n)
		}
		time.Sleep(time.Millisecond)
		owners.Add(-1)
	}
}

// takeTurns has the lock three times, and queues each time in another way.
func takeTurns(ctx context.Context, lock *zklock.Lock, work func()) error {
	n, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	work()
	if n, err = n.Requeue(ctx); err != nil {
		return err
	}
	work()
	if err := n.Release(); err != nil {
		return err
	}
	if n, err = lock.Acquire(ctx); err != nil {
		return err
	}
	work()
	return n.Release()
}
