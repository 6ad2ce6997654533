package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// of is a semaphore of so many permits.
func (p process) of(t *testing.T, permits int) second.Semaphore {
	t.Helper()
	s, err := second.TierOf(p.Client).Semaphore(limits, permits, second.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wanting is a demand for k permits.
func wanting(k int) *second.Demand {
	return &second.Demand{Take: func(free int) int {
		if free < k {
			return 0
		}
		return k
	}}
}

// A taking is a call of Acquire in a goroutine of its own.
type taking struct {
	sem     second.Semaphore
	done    chan struct{}
	permits []second.Permit // these are valid when done is closed
	err     error
}

func take(t *testing.T, sem second.Semaphore, k int) *taking {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	w := &taking{sem: sem, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.permits, w.err = sem.Acquire(ctx, wanting(k))
	}()
	synctest.Wait()
	return w
}

// waits fails unless the call waits when nothing moves any more.
func (w *taking) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case <-w.done:
		t.Fatalf("Acquire: got %d permits, %v; want it to wait", len(w.permits), w.err)
	default:
	}
}

func (w *taking) taken(t *testing.T) []second.Permit {
	t.Helper()
	if <-w.done; w.err != nil {
		t.Fatal(w.err)
	}
	return w.permits
}

// gives waits for the permits and gives them up.
func (w *taking) gives(t *testing.T) {
	t.Helper()
	wantErr(t, "Release", w.sem.Release(w.taken(t)), nil)
}

// calls are both ways to take a permit.
func calls(t *testing.T, sem second.Semaphore) map[string]func() ([]second.Permit, error) {
	return map[string]func() ([]second.Permit, error){
		"Acquire":    func() ([]second.Permit, error) { return sem.Acquire(t.Context(), wanting(1)) },
		"TryAcquire": func() ([]second.Permit, error) { return sem.TryAcquire(t.Context(), 1) },
	}
}

// wantTaken fails unless so many permits are taken on the server, and nobody queues for any.
func wantTaken(t *testing.T, s *zktest.Server, want int) {
	t.Helper()
	synctest.Wait()
	if taken, queue := s.Children(limits+"/leases"), s.Children(limits+"/locks"); len(taken) != want || len(queue) != 0 {
		t.Errorf("taken are %v, and those who queue %v; want %d, and nobody", taken, queue, want)
	}
}

// What permits cost does not depend on how many they are.
func TestRoundTripsOfASemaphore(t *testing.T) {
	const trip = 10 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.Config{Latency: trip / 2})
		sem := start(t, s).of(t, 10)
		take(t, sem, 1).gives(t) // makes the parents
		other := start(t, s).of(t, 10)
		tr := record(s)
		var permits []second.Permit
		costs := func(what string, trips time.Duration, requests int, f func()) {
			t.Helper()
			begun := time.Now()
			f()
			if took := time.Since(begun); took != trips*trip {
				t.Errorf("%s took %v, want %d round trips of %v", what, took, trips, trip)
			}
			if ops := tr.take(); len(ops) != requests {
				t.Errorf("%s: requests %v, want %d", what, ops, requests)
			}
		}
		for _, k := range []int{1, 10} {
			// A turn in the queue, two looks of two reads each at the most, and one write for all permits and the turn.
			costs(fmt.Sprintf("Acquire of %d", k), 3, 5, func() { permits = take(t, sem, k).taken(t) })
			costs(fmt.Sprintf("Release of %d", k), 1, 1, func() { wantErr(t, "Release", sem.Release(permits), nil) })
		}
		costs("TryAcquire", 5, 8, func() {
			var err error
			permits, err = sem.TryAcquire(t.Context(), 10)
			wantErr(t, "TryAcquire", err, nil)
		})
		costs("TryAcquire with none free", 1, 2, func() {
			_, err := other.TryAcquire(t.Context(), 1)
			wantErr(t, "TryAcquire", err, zklock.ErrLocked)
		})
		wantErr(t, "Release", sem.Release(permits), nil)
	})
}

// The number belongs to the path, as far as that is ours to write to. Whoever follows the error has it changed.
func TestNumberOfPermitsIsKeptWithThePath(t *testing.T) {
	for name, c := range map[string]struct {
		content, after string
		advice         bool     // the error says how to change the number
		want           []string // in the error; none: no error
	}{
		"nothing":    {"", "tierlock permits=3", false, nil},
		"ours":       {"tierlock permits=3", "tierlock permits=3", false, nil},
		"somebody's": {"10.0.0.7", "10.0.0.7", false, nil},
		"another number": {
			"tierlock permits=10", "tierlock permits=10", true,
			[]string{"says 10, this process 3", "one number everywhere", "stop all processes"},
		},
		"kazoo's": {"3", "3", false, []string{"kazoo", "another path"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				conn := raw(t, s)
				put(t, conn, 0, "/limits", limits)
				if _, err := conn.Set(limits, []byte(c.content), -1); err != nil { // so that it is not the first version
					t.Fatal(err)
				}
				sem := start(t, s).of(t, 3)
				for call, take := range calls(t, sem) {
					permits, err := take()
					if len(c.want) == 0 {
						wantErr(t, call, err, nil)
						wantErr(t, "Release", sem.Release(permits), nil)
						continue
					}
					wantErr(t, call, err, second.ErrPermits)
					for _, part := range c.want {
						if !strings.Contains(fmt.Sprint(err), part) {
							t.Errorf("%s: got %v, want it to say %s", call, err, part)
						}
					}
					wantTaken(t, s, 0)
				}
				if data, _, _ := s.Get(limits); string(data) != c.after {
					t.Errorf("content of the path: %q, want %q", data, c.after)
				}
				if c.advice {
					_, err := sem.TryAcquire(t.Context(), 1)
					advice := regexp.MustCompile(`set the content of (\S+) to "(.*)"`).FindStringSubmatch(fmt.Sprint(err))
					if advice == nil {
						t.Fatalf("got %v, want it to say how to change the number", err)
					}
					if _, err := conn.Set(advice[1], []byte(advice[2]), -1); err != nil {
						t.Fatal(err)
					}
					take(t, sem, 3).gives(t)
				}
			})
		})
	}
}

// Somebody says how many there are, between the look that found nothing and the write.
func TestNumberOfPermitsOfSomebodyElseIsNotOverwritten(t *testing.T) {
	for call, want := range map[string]string{
		"Acquire":    "says 4, this process 3", // it looks again
		"TryAcquire": "the number of permits was changed",
	} {
		bubble(t, func(t *testing.T, s *zktest.Server) {
			const theirs = "tierlock permits=4"
			conn, sem := raw(t, s), start(t, s).of(t, 3)
			put(t, conn, 0, "/limits", limits)
			s.Intercept(func(f *zktest.Frame) zktest.Action {
				if f.Dir == zktest.Request && f.Op == "setData" && f.Session != conn.SessionID() {
					if _, err := conn.Set(limits, []byte(theirs), -1); err != nil {
						t.Error(err)
					}
				}
				return zktest.Pass
			})
			if _, err := calls(t, sem)[call](); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want an error that says %q", call, err, want)
			}
			if data, _, _ := s.Get(limits); string(data) != theirs {
				t.Errorf("%s: content of the path: %q, want what was written meanwhile", call, data)
			}
			wantTaken(t, s, 0)
		})
	}
}

// It is an error, and the turn goes.
func TestPermitsThatMayNotBeTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		conn := raw(t, s)
		put(t, conn, 0, "/limits", limits, limits+"/leases")
		if _, err := conn.SetACL(limits+"/leases", zk.WorldACL(zk.PermAll&^zk.PermCreate), -1); err != nil {
			t.Fatal(err)
		}
		for call, take := range calls(t, start(t, s).of(t, 3)) {
			if _, err := take(); !errors.Is(err, zk.ErrNoAuth) || !strings.Contains(err.Error(), "CREATE") {
				t.Errorf("%s: got %v, want what is not permitted", call, err)
			}
			wantTaken(t, s, 0)
		}
	})
}

// A permit that somebody deletes is told to those who have it, and to nobody else.
func TestPermitThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).of(t, 3)
		one := take(t, sem, 1).taken(t)
		name := s.Children(limits + "/leases")[0]
		two := take(t, sem, 2)
		awaitWatch()
		remove(t, raw(t, s), limits+"/leases/"+name)
		select {
		case <-one[0].Context().Done():
		case <-time.After(time.Second): // virtual
			t.Error("not told")
		}
		for _, other := range two.taken(t) {
			if err := other.Context().Err(); err != nil {
				t.Errorf("told to others: %v", err)
			}
		}
		wantErr(t, "Release", sem.Release(one), zklock.ErrLost)
		two.gives(t)
		wantTaken(t, s, 0)
	})
}

// What another program puts below leases counts, as that of Curator does.
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

// Whoever loses the turn while it waits queues again, though nothing becomes free.
func TestTurnThatIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem := start(t, s).of(t, 1)
		one := take(t, sem, 1)
		waiting := take(t, start(t, s).of(t, 1), 1)
		awaitWatch()
		turn := s.Children(limits + "/locks")[0]
		remove(t, raw(t, s), limits+"/locks/"+turn)
		time.Sleep(time.Second)
		if now := s.Children(limits + "/locks"); len(now) != 1 || now[0] == turn {
			t.Errorf("a second later those who queue are %v, want one more turn", now)
		}
		one.gives(t)
		waiting.gives(t)
	})
}

// Neither a turn that was traded for permits nor permits that were given up are locks that were lost.
func TestPermitsThatAreGivenUpAreNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		p, log := startLogged(t, s)
		one := take(t, start(t, s).of(t, 3), 3)
		waiting := take(t, p.of(t, 3), 3)
		awaitWatch() // of the turn
		one.gives(t)
		waiting.taken(t)
		awaitWatch() // of the permits
		waiting.gives(t)
		wantLines(t, log, slog.LevelWarn, "lost", 0)
	})
}

// The answer to the one write that takes permits comes when the lease is over: nothing would tell of their loss.
func TestPermitsAreNotTakenWithoutALease(t *testing.T) { // I1
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, p := start(t, s).of(t, 2), start(t, s)
		begun := time.Now() // of the lease of p
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
		if left := s.Children(limits + "/leases"); len(left) != 0 {
			t.Errorf("taken: %v, by one whose lease is over", left)
		}
		s.Intercept(nil)
		if until := waiting.taken(t)[0].ValidUntil(); !until.After(time.Now()) {
			t.Errorf("valid until %v", until)
		}
		waiting.gives(t)
	})
}

// The answer to the trade is lost, and before it is looked for somebody deletes one of the permits: others are taken.
func TestPermitsOfWhichOneIsGoneBeforeTheLook(t *testing.T) {
	bubble(t, func(t *testing.T, s *zktest.Server) {
		sem, conn := start(t, s).of(t, 3), raw(t, s)
		take(t, sem, 1).gives(t) // makes the parents
		var once sync.Once
		s.Intercept(func(f *zktest.Frame) (fate zktest.Action) {
			if trades(f) && f.Dir == zktest.Reply {
				once.Do(func() {
					remove(t, conn, limits+"/leases/"+s.Children(limits + "/leases")[1])
					fate = zktest.Cut
				})
			}
			return fate
		})
		all := take(t, sem, 3)
		if permits := all.taken(t); len(permits) != 3 {
			t.Errorf("got %d permits, want 3", len(permits))
		}
		wantTaken(t, s, 3)
		all.gives(t)
	})
}

// What is left of many permits goes with one look and one write.
func TestManyPermitsWhoseAnswerIsLostGoTogether(t *testing.T) {
	const many = 1000
	for lost, stage := range map[string]zktest.Direction{
		"of the exchange":                          zktest.Reply,
		"of the release":                           zktest.Reply,
		"of the release, which is not executed":    zktest.Request,
		"of the release, while there is no server": 0, // no frame is struck
	} {
		t.Run(lost, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *zktest.Server) {
				p := start(t, s)
				sem := p.of(t, many)
				take(t, sem, 1).gives(t) // the path is there
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
					_, err := sem.Acquire(ctx, wanting(many))
					wantErr(t, "Acquire", err, context.Canceled)
				} else {
					if stage == 0 { // nothing was struck
						s.Member(addr).Refuse()
						s.CutAll()
						synctest.Wait()
						time.AfterFunc(time.Second, s.Member(addr).Accept)
					}
					wantErr(t, "Release", sem.Release(permits), nil)
				}
				time.Sleep(timeout)
				wantTaken(t, s, 0)
				if requests > 20 {
					t.Errorf("%d requests, want 20 at most", requests)
				}
			})
		})
	}
}
