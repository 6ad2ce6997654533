package tier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/tier"
)

type callerKey struct{}

// A diary records the events of an observer. Each event is a line.
type diary struct {
	mu    sync.Mutex // guards the fields below
	lines []string
	ats   []time.Time
}

func (d *diary) note(ctx context.Context, at time.Time, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	if ctx != nil {
		line = fmt.Sprint(ctx.Value(callerKey{}), " ", line)
	}
	d.lines, d.ats = append(d.lines, line), append(d.ats, at)
}

func (d *diary) observer() tier.Observer {
	var nobody context.Context // the context of an event about the connection, for which no caller waits
	permits := func(p *tier.Permits) string {
		if p == nil {
			return ""
		}
		return fmt.Sprint(p.Count(), " ")
	}
	return tier.Observer{
		Waiting: func(ctx context.Context, w tier.Wait) {
			d.note(ctx, time.Now(), "waits %v for %d ahead %d here %t", w.Waited, w.Permits, w.Position, w.Here != nil)
		},
		Acquired: func(ctx context.Context, a tier.AcquiredEvent) {
			d.note(ctx, a.At, "acquired %s%s after %v", permits(a.Permits), a.From, a.Waited)
		},
		Failed: func(ctx context.Context, f tier.FailedEvent) { d.note(ctx, f.At, "failed after %v", f.Waited) },
		Lost:   func(ctx context.Context, l tier.LostEvent) { d.note(ctx, l.At, "lost by %s", l.Cause) },
		Released: func(ctx context.Context, r tier.ReleasedEvent) {
			d.note(ctx, r.At, "released %safter %v lost %t", permits(r.Permits), r.Held, errors.Is(r.Err, tier.ErrLost))
		},
		Connection: func(c tier.ConnectionEvent) { d.note(nobody, time.Now(), "%s", c.State) },
	}
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	need.That(t, fmt.Sprintf("events:\n%s\nwant:\n%s", strings.Join(d.lines, "\n"), strings.Join(want, "\n")), slices.Equal(d.lines, want))
	need.That(t, fmt.Sprintf("the times are not in order: %v", d.ats), slices.IsSortedFunc(d.ats, time.Time.Compare))
	d.lines, d.ats = nil, nil
}

// wantAll is like want, but for events whose order is not fixed.
func (d *diary) wantAll(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	slices.Sort(d.lines)
	d.mu.Unlock()
	d.want(t, want...)
}

func caller(t *testing.T, name string) context.Context {
	return context.WithValue(soon(t), callerKey{}, name)
}

func TestObserverIsToldOfEachTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		locks := observed(t, s, d.observer(), tier.WithHandOff(time.Hour), tier.WithLinger(time.Minute))
		mu := locks.Mutex("/locks/a")
		d.want(t, "connected")

		hold := start(caller(t, "A"), mu).granted(t)
		d.want(t, "A acquired found after 0s")
		inner := start(hold.Context(caller(t, "A")), mu).granted(t)
		b := start(caller(t, "B"), mu).blocked(t)
		time.Sleep(3 * time.Second)
		d.want(t, "B waits 1s for 0 ahead 0 here true") // reported once
		ctx, cancel := context.WithTimeout(caller(t, "C"), time.Second/2)
		defer cancel()
		c := start(ctx, mu)
		<-c.done
		d.want(t, "C failed after 500ms")
		wantErr(t, "TryAcquire", errOf(mu.TryAcquire(caller(t, "D"))), tier.ErrLocked)
		release(t, hold)
		d.want(t) // no event for the TryAcquire, and none for releasing one of two holds
		time.Sleep(time.Second)
		release(t, inner)
		hold = b.granted(t)
		d.wantAll(t, "A released after 4.5s lost false", "B acquired hand-off after 4.5s")
		release(t, hold)
		d.want(t, "B released after 0s lost false")

		hold = need.Get(mu.TryAcquire(caller(t, "D")))(t)
		release(t, hold)
		d.want(t, "D acquired resumption after 0s", "D released after 0s lost false")
	})
}

func TestObserverIsToldOfLossesAndTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		locks, p := dial(t, s, "", tier.WithObserver(d.observer()))
		mu := locks.Mutex("/locks/a")
		d.want(t, "connected")
		hold := start(caller(t, "A"), mu).granted(t)
		d.want(t, "A acquired found after 0s")
		heal := cut(p)
		d.want(t, "suspended")
		heal()
		p.Renew()
		d.want(t, "connected")
		s.Expire("/locks/a", 0)
		time.Sleep(time.Second)
		d.wantAll(t, "A lost by session", "connected", "expired")
		wantErr(t, "Release", hold.Release(), tier.ErrLost)
		d.want(t, "A released after 2.5s lost true")

		// The process finds this loss only when it removes the contender.
		hold = start(caller(t, "B"), mu).granted(t)
		s.Remove("/locks/a", 0)
		s.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Leave {
				f.After = time.Second
			}
			return f
		})
		hold.Release()
		d.want(t, "B acquired found after 0s", "B lost by deletion", "B released after 0s lost true")
	})
}

func TestLossOfTheNextHoldIsNotToldOfTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		o := tier.Observer{Lost: d.observer().Lost}
		mu := observed(t, s, o, tier.WithHandOff(time.Hour)).Mutex("/locks/a")
		hold := start(caller(t, "A"), mu).granted(t)
		b := start(caller(t, "B"), mu).blocked(t)
		release(t, hold)
		hold = b.granted(t)
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		d.want(t, "B lost by session")
		hold.Release()
	})
}

// The events of a lock keep their order. If the observer blocks, it therefore gets the event Lost only after the release. The release does
// not wait for the observer.
func TestReleaseDoesNotWaitForTheObserverOfTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		o := d.observer()
		o.Connection = nil
		released := make(chan struct{})
		o.Lost = func(ctx context.Context, l tier.LostEvent) {
			<-released
			time.Sleep(time.Minute)
			d.note(ctx, l.At, "lost")
		}
		hold := start(caller(t, "A"), observed(t, s, o).Mutex("/locks/a")).granted(t)
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		synctest.Wait()
		begun := time.Now()
		wantErr(t, "Release", hold.Release(), tier.ErrLost)
		need.Equal(t, "waited", time.Since(begun), 0)
		d.want(t, "A acquired found after 0s")
		close(released)
		time.Sleep(time.Minute)
		d.want(t, "A lost", "A released after 0s lost true")
	})
}

func TestCloseWaitsUntilTheObserverKnowsOfTheLosses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		var told []string
		locks := observed(t, s, tier.Observer{Lost: func(_ context.Context, l tier.LostEvent) {
			time.Sleep(time.Second - 1)
			told = append(told, string(l.Cause)) // without the wait of Close, the race detector would report this write
		}})
		hold := acquire(t, locks.Mutex("/locks/a"))
		locks.Close()
		need.List(t, "the losses that were reported", told, "close")
		hold.Release()
	})
}

// If a function of an observer does not return, only the lock of that event is delayed.
func TestObserverThatBlocksHoldsUpNobodyElse(t *testing.T) {
	for _, blocks := range []string{"waiting", "acquired", "failed", "lost", "released", "connection"} {
		t.Run(blocks, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Server) {
				until, blocked := make(chan struct{}), make(chan struct{}, 9)
				block := func(what string, ctx context.Context) {
					if what == blocks && (ctx == nil || ctx.Value(callerKey{}) == "slow") {
						blocked <- struct{}{}
						<-until
					}
				}
				locks := observed(t, s, tier.Observer{
					Waiting:    func(ctx context.Context, _ tier.Wait) { block("waiting", ctx) },
					Acquired:   func(ctx context.Context, _ tier.AcquiredEvent) { block("acquired", ctx) },
					Failed:     func(ctx context.Context, _ tier.FailedEvent) { block("failed", ctx) },
					Lost:       func(ctx context.Context, _ tier.LostEvent) { block("lost", ctx) },
					Released:   func(ctx context.Context, _ tier.ReleasedEvent) { block("released", ctx) },
					Connection: func(tier.ConnectionEvent) { block("connection", nil) },
				}, tier.WithHandOff(time.Hour))
				mu := locks.Mutex("/locks/a")
				ctx, cancel := context.WithTimeout(caller(t, "slow"), 2*time.Second)
				defer cancel()
				first := acquire(t, mu)
				slow := make(chan struct{})
				go func() {
					defer close(slow)
					if hold, err := mu.Acquire(ctx); err == nil {
						if blocks == "lost" {
							s.Expire("/locks/a", 0)
							<-hold.Lost()
						}
						hold.Release()
					}
				}()
				synctest.Wait()
				if blocks == "released" || blocks == "acquired" || blocks == "lost" {
					release(t, first)
				}
				time.Sleep(3 * time.Second)
				locks.Stats()
				locks.HeldLocks()
				if hold, err := mu.TryAcquire(t.Context()); err == nil {
					release(t, hold)
				} else if !errors.Is(err, tier.ErrLocked) {
					t.Error(err)
				}
				first.Release()
				release(t, acquire(t, locks.Mutex("/locks/b")))
				need.Equal(t, "calls that block", len(blocked), 1)
				close(until)
				<-slow
			})
		})
	}
}

func TestObserverIsForARegistry(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		mu := process(t, s).Mutex("/locks/a", tier.WithObserver(tier.Observer{}))
		need.That(t, "one lock got an observer", errOf(mu.TryAcquire(t.Context())) != nil)
	})
}

// If two observers are registered, such as one for metrics and one for traces, both get all events.
func TestAllObserversAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		first, second := new(diary), new(diary)
		o := second.observer()
		o.WaitingAfter = 100 * time.Millisecond
		order := ""
		adds := func(name string) tier.Option {
			return tier.WithObserver(tier.Observer{Acquired: func(context.Context, tier.AcquiredEvent) { order += name }})
		}
		locks := observed(t, s, first.observer(), tier.WithObserver(tier.Observer{}), tier.WithObserver(o), adds("a"), adds("b"))
		mu := locks.Mutex("/locks/a")
		synctest.Wait() // the event of the connection is reported by another goroutine
		hold := start(caller(t, "A"), mu).granted(t)
		ctx, cancel := context.WithTimeout(caller(t, "B"), time.Second/2)
		defer cancel()
		<-start(ctx, mu).done
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		synctest.Wait()
		hold.Release()
		need.Equal(t, "the order of the observers", order, "ab")
		want := []string{"connected", "A acquired found after 0s", "B waits 100ms for 0 ahead 0 here true", "B failed after 500ms"}
		for _, d := range []*diary{first, second} {
			synctest.Wait()
			d.mu.Lock()
			need.Must(t, fmt.Sprintf("events: %q", d.lines), len(d.lines) >= len(want)+2)
			d.lines, d.ats = d.lines[:len(want)], nil
			d.mu.Unlock()
			d.want(t, want...)
		}
	})
}

// The function inVain waits for k permits for two seconds, and returns the error. It fails the test if there is no error.
func inVain(t *testing.T, s *tier.Semaphore, k int) *tier.WaitError {
	t.Helper()
	_, err := s.Acquire(need.Within(t, 2*time.Second), k)
	var wait *tier.WaitError
	need.Must(t, fmt.Sprintf("got %v, want a WaitError", err), errors.As(err, &wait) && errors.Is(err, context.DeadlineExceeded))
	need.Equal(t, "path, permits and time", [3]any{wait.Path, wait.Permits, wait.Waited}, [3]any{pool, k, 2 * time.Second})
	return wait
}

func TestWaitErrorOfASemaphoreSaysWhoIsInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		holder, first := process(t, srv).Semaphore(pool, 4), named(t, srv, "billing").Semaphore(pool, 4)
		p := process(t, srv).Semaphore(pool, 4)
		kept := take(t, process(t, srv).Semaphore(pool, 4), 1) // keeps the server from removing the parent of the permits
		two := take(t, holder, 2)

		err := inVain(t, p, 3)
		text := "tier: acquire " + pool + ": waited 2s for 3 permits: context deadline exceeded; " +
			"this process is first in the queue, and too few permits are free: see Contenders"
		need.That(t, fmt.Sprintf("no other process queues: %+v", err), err.Position == 0 && err.Taken == 0 && err.First)
		need.Equal(t, "the error", err.Error(), text)
		err = inVain(t, holder, 3)
		need.Equal(t, "permits of a process that waits for its own permits", err.Taken, 2)
		need.That(t, err.Error(), strings.HasSuffix(err.Error(), ": see Contenders; this process has 2 permits"))
		queued := time.Now().UTC().Format(time.RFC3339)
		ahead := ask(soon(t), first, 3).blocked(t)
		err = inVain(t, p, 1)
		need.That(t, fmt.Sprintf("behind another one: %+v", err),
			err.Position == 1 && err.AheadHolds && !err.First && err.Ahead.PID == os.Getpid() && err.Ahead.Label == "billing" && err.Here == nil)
		ending := "(billing) is ahead, in the queue since " + queued
		if text := err.Error(); !strings.Contains(text, "waited 2s for 1 permit: ") || !strings.HasSuffix(text, ending) {
			t.Errorf("behind another one: %v", err)
		}
		second := ask(soon(t), p, 1).blocked(t)
		all, listed := p.Contenders(soon(t))
		need.That(t, fmt.Sprintf("contenders %+v, %v; want the holders of 1 and 2 permits, and then the queue", all, listed),
			listed == nil && len(all) == 4 && all[0].Permits == 1 && all[1].Permits == 2 && all[2].Label == "billing" && all[3].Permits == 0)
		err = inVain(t, holder, 1)
		if err.Position != 2 || err.AheadHolds || err.Taken != 2 ||
			!strings.Contains(err.Error(), "; 2 processes are ahead, the nearest of them is process ") {
			t.Errorf("behind two: %v", err)
		}
		release(t, two)
		release(t, ahead.granted(t))
		release(t, second.granted(t))
		release(t, kept)
	})
}

func TestObserverIsToldOfPermits(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		d := new(diary)
		s := observed(t, srv, d.observer(), tier.WithHandOff(time.Hour)).Semaphore(pool, 3)
		d.want(t, "connected")
		two := ask(caller(t, "A"), s, 2).granted(t)
		d.want(t, "A acquired 2  after 0s")
		b := ask(caller(t, "B"), s, 3).blocked(t)
		time.Sleep(3 * time.Second)
		d.want(t, "B waits 1s for 3 ahead 0 here false") // reported once
		ctx, cancel := context.WithTimeout(caller(t, "C"), time.Second/2)
		defer cancel()
		need.That(t, "C got a permit", errOf(s.Acquire(ctx, 1)) != nil)
		d.want(t, "C failed after 500ms")
		wantErr(t, "TryAcquire", errOf(s.TryAcquire(caller(t, "D"), 1)), tier.ErrLocked)
		d.want(t)
		release(t, two)
		d.wantAll(t, "A released 2 after 3.5s lost false", "B acquired 3  after 3.5s")
		time.Sleep(time.Second)
		release(t, b.granted(t))
		d.want(t, "B released 3 after 1s lost false")
		release(t, need.Get(s.TryAcquire(caller(t, "D"), 1))(t))
		d.want(t, "D acquired 1  after 0s", "D released 1 after 0s lost false")
	})
}

func TestObserverIsToldOfPermitsThatAreLost(t *testing.T) {
	bubble(t, func(t *testing.T, srv *memory.Server) {
		d := new(diary)
		o := d.observer()
		o.Connection = nil
		s := observed(t, srv, o).Semaphore(pool, 3)
		lost := ask(caller(t, "A"), s, 2).granted(t)
		d.want(t, "A acquired 2  after 0s")
		srv.Expire(queueOf(pool), 0)
		d.want(t, "A lost by session") // reported once, and before the release
		wantErr(t, "Release", lost.Release(), tier.ErrLost)
		d.want(t, "A released 2 after 0s lost true")
		time.Sleep(10 * time.Second)

		// The process finds this loss only when it removes the contender.
		lost = ask(caller(t, "B"), s, 1).granted(t)
		srv.Remove(queueOf(pool), 0)
		wantErr(t, "Release", lost.Release(), tier.ErrLost)
		d.want(t, "B acquired 1  after 0s", "B lost by deletion", "B released 1 after 0s lost true")
	})
}
