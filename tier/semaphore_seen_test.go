package tier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
	"github.com/tierlock/tierlock/zktest"
)

// inVain is the error of a wait for k permits that lasts for two seconds.
func inVain(t *testing.T, s *tier.Semaphore, k int) *tier.WaitError {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := s.Acquire(ctx, k)
	var wait *tier.WaitError
	if !errors.As(err, &wait) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want a WaitError", err)
	}
	if wait.Path != pool || wait.Permits != k || wait.Waited != 2*time.Second {
		t.Errorf("%s waited %v for %d permits, want 2 s for %d", wait.Path, wait.Waited, wait.Permits, k)
	}
	return wait
}

func TestWaitErrorOfASemaphoreSaysWhoIsInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		holder, first := process(t, srv).Semaphore(pool, 4), named(t, srv, "billing").Semaphore(pool, 4)
		p := process(t, srv).Semaphore(pool, 4)
		kept := take(t, process(t, srv).Semaphore(pool, 4), 1) // so that the server does not remove the parent of permits meanwhile
		two := take(t, holder, 2)

		err := inVain(t, p, 3)
		if err.Position != 0 || err.Taken != 0 || !err.First ||
			err.Error() != "tier: acquire "+pool+": waited 2s for 3 permits: context deadline exceeded; this process is first in the queue, and too few are free: see Contenders" {
			t.Errorf("nobody else queues: %+v", err)
		}
		err = inVain(t, holder, 3)
		if err.Taken != 2 || !strings.HasSuffix(err.Error(), ": see Contenders; this process has 2 permits") {
			t.Errorf("one that waits for itself: %v", err)
		}
		queued := time.Now().UTC().Format(time.RFC3339)
		ahead := ask(soon(t), first, 3).waits(t)
		err = inVain(t, p, 1)
		if err.Position != 1 || !err.AheadHolds || err.First || err.Ahead.PID != os.Getpid() || err.Ahead.Label != "billing" || err.Here != nil {
			t.Errorf("behind another one: %+v", err)
		}
		if text := err.Error(); !strings.Contains(text, "waited 2s for 1 permit: ") || !strings.HasSuffix(text, "(billing) is ahead, in the queue since "+queued) {
			t.Errorf("behind another one: %v", err)
		}
		second := ask(soon(t), p, 1).waits(t)
		err = inVain(t, holder, 1)
		if err.Position != 2 || err.AheadHolds || err.Taken != 2 || !strings.Contains(err.Error(), "; 2 processes are ahead, of which the last is process ") {
			t.Errorf("behind two: %v", err)
		}
		giveBack(t, two)
		giveBack(t, ahead.served(t))
		giveBack(t, second.served(t))
		giveBack(t, kept)
	})
}

func TestStatsCountPermits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		locks := process(t, srv)
		s := locks.Semaphore(pool, 5, tier.WithHandOff(time.Hour))
		want := func(when string, permits, waiters int) {
			t.Helper()
			wantStats(t, when, locks, tier.Stats{Permits: permits, PermitWaiters: waiters})
		}
		three := take(t, s, 3)
		one, err := locks.Semaphore("/limits/b", 1).TryAcquire(soon(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		want("taken", 4, 0)
		waiting := []*claim{ask(soon(t), s, 3).waits(t), ask(soon(t), s, 3).waits(t)}
		want("waiting", 4, 2)
		inVain(t, s, 1)
		want("after a wait in vain", 4, 2)
		giveBack(t, three)
		three = waiting[0].served(t)
		want("handed on", 4, 1)
		giveBack(t, one)
		want("one released", 3, 1)
		srv.Expire(queueOf(pool), 0)
		<-three.Lost()
		got := waiting[1].served(t)
		want("lost", 6, 0)
		three.Release()
		giveBack(t, got)
		want("all released", 0, 0)
		if err := tier.LeaveServed(soon(t), s, 2, func() {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want("after one that left with permits", 0, 0)
	})
}

// permitObserver writes down what becomes of permits.
func (d *diary) permitObserver() tier.Observer {
	o := d.observer()
	o.Connection = nil
	o.Waiting = func(ctx context.Context, w tier.Wait) {
		d.note(ctx, time.Now(), "waits %v for %d ahead %d", w.Waited, w.Permits, w.Position)
	}
	o.Acquired = func(ctx context.Context, a tier.AcquiredEvent) {
		d.note(ctx, a.At, "acquired %d after %v", a.Permits.Count(), a.Waited)
	}
	o.Released = func(ctx context.Context, r tier.ReleasedEvent) {
		d.note(ctx, r.At, "released %d after %v lost %t", r.Permits.Count(), r.Held, errors.Is(r.Err, tier.ErrLost))
	}
	return o
}

func permitsOf(t *testing.T, s *tier.Semaphore, name string, k int) *tier.Permits {
	t.Helper()
	permits, err := s.Acquire(caller(t, name), k)
	if err != nil {
		t.Fatal(err)
	}
	return permits
}

func TestObserverIsToldOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		d := new(diary)
		s := observed(t, srv, d.permitObserver(), tier.WithHandOff(time.Hour)).Semaphore(pool, 3)
		two := permitsOf(t, s, "A", 2)
		d.want(t, "A acquired 2 after 0s")
		b := ask(caller(t, "B"), s, 3).waits(t)
		time.Sleep(3 * time.Second)
		d.want(t, "B waits 1s for 3 ahead 0") // once
		ctx, cancel := context.WithTimeout(caller(t, "C"), time.Second/2)
		defer cancel()
		if _, err := s.Acquire(ctx, 1); err == nil {
			t.Error("C got a permit")
		}
		d.want(t, "C failed after 500ms")
		if _, err := s.TryAcquire(caller(t, "D"), 1); !errors.Is(err, tier.ErrLocked) {
			t.Error(err)
		}
		d.want(t)
		giveBack(t, two)
		synctest.Wait()
		d.mu.Lock()
		slices.Sort(d.lines) // between holds there is no order
		d.mu.Unlock()
		d.want(t, "A released 2 after 3.5s lost false", "B acquired 3 after 3.5s")
		time.Sleep(time.Second)
		giveBack(t, b.served(t))
		d.want(t, "B released 3 after 1s lost false")
		tried, err := s.TryAcquire(caller(t, "D"), 1)
		if err != nil {
			t.Fatal(err)
		}
		giveBack(t, tried)
		d.want(t, "D acquired 1 after 0s", "D released 1 after 0s lost false")
	})
}

func TestObserverIsToldOfPermitsThatAreHandedOn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		d := new(diary)
		s := observed(t, srv, d.permitObserver(), tier.WithHandOff(time.Hour)).Semaphore(pool, 2)
		both := permitsOf(t, s, "A", 2)
		d.want(t, "A acquired 2 after 0s")
		b := ask(caller(t, "B"), s, 2).waits(t)
		time.Sleep(time.Second / 2)
		giveBack(t, both)
		got := b.served(t)
		synctest.Wait()
		d.mu.Lock()
		slices.Sort(d.lines) // between holds there is no order
		d.mu.Unlock()
		d.want(t, "A released 2 after 500ms lost false", "B acquired 2 after 500ms")
		time.Sleep(time.Second)
		giveBack(t, got)
		d.want(t, "B released 2 after 1s lost false") // from when they came to B
	})
}

func TestObserverIsToldOfPermitsThatAreLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		d := new(diary)
		s := observed(t, srv, d.permitObserver()).Semaphore(pool, 3)
		lost := permitsOf(t, s, "A", 2)
		d.want(t, "A acquired 2 after 0s")
		srv.Expire(queueOf(pool), 0)
		d.want(t, "A lost by session") // once, before the release
		if err := lost.Release(); !errors.Is(err, tier.ErrLost) {
			t.Error(err)
		}
		d.want(t, "A released 2 after 0s lost true")
		time.Sleep(10 * time.Second)

		// Nobody but the delete finds out.
		lost = permitsOf(t, s, "B", 1)
		srv.Remove(queueOf(pool), 0)
		if err := lost.Release(); !errors.Is(err, tier.ErrLost) {
			t.Error(err)
		}
		d.want(t, "B acquired 1 after 0s", "B lost by deletion", "B released 1 after 0s lost true")
	})
}

func TestReleaseOfPermitsAndCloseWaitUntilTheObserverKnowsOfTheLoss(t *testing.T) {
	for _, end := range []string{"release", "close"} {
		t.Run(end, func(t *testing.T) {
			bubble(t, func(t *testing.T, srv *memory.Server) {
				told := 0 // the detector sees to it that the test waits
				locks := observed(t, srv, tier.Observer{Lost: func(context.Context, tier.LostEvent) {
					time.Sleep(time.Minute)
					told++
				}})
				permits := take(t, locks.Semaphore(pool, 3), 2)
				if end == "release" {
					srv.Expire(queueOf(pool), 0)
					<-permits.Lost()
					synctest.Wait()
					permits.Release()
				} else {
					locks.Close()
				}
				if told != 1 {
					t.Errorf("told %d times, want once before the end of %s", told, end)
				}
				permits.Release()
			})
		})
	}
}

func TestObserversAreToldOfPermitsInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		first, second := new(diary), new(diary)
		s := observed(t, srv, first.permitObserver(), tier.WithObserver(second.permitObserver())).Semaphore(pool, 1)
		one := permitsOf(t, s, "A", 1)
		srv.Expire(queueOf(pool), 0)
		synctest.Wait()
		one.Release()
		for _, d := range []*diary{first, second} {
			d.want(t, "A acquired 1 after 0s", "A lost by session", "A released 1 after 0s lost true")
		}
	})
}

func TestContendersOfASemaphore(t *testing.T) {
	zkBubble(t, func(t *testing.T, srv *zktest.Server) {
		a := zkProcess(t, srv, zklock.WithLabel("a")).Semaphore(pool, 5)
		b := zkProcess(t, srv, zklock.WithLabel("b")).Semaphore(pool, 5)
		want := func(when string, want ...string) {
			t.Helper()
			all, err := b.Contenders(soon(t))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range all {
				got = append(got, fmt.Sprintf("%s has %d", c.Label, c.Permits))
				if c.PID != os.Getpid() || c.ID == "" || c.Since.IsZero() || (c.Token != 0) != (c.Permits == 0) {
					t.Errorf("%s: %+v", when, c)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		want("never used")
		two := take(t, b, 2)
		one, other := take(t, a, 1), take(t, a, 1)
		want("taken", "b has 2", "a has 2")
		waiting := []*claim{ask(soon(t), b, 4).waits(t), ask(soon(t), a, 5).waits(t)}
		want("two wait", "b has 2", "a has 2", "b has 0", "a has 0")
		for _, p := range []*tier.Permits{two, one, other} {
			giveBack(t, p)
		}
		got := waiting[0].served(t)
		synctest.Wait()
		want("one was served", "b has 4", "a has 0")
		giveBack(t, got)
		giveBack(t, waiting[1].served(t))
		synctest.Wait()
		want("nobody")
	})
}
