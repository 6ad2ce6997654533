package tier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/tier"
)

type callerKey struct{}

// A diary is what an observer was told, a line each.
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
	var nobody context.Context // who is connected waits for nothing
	return tier.Observer{
		Waiting: func(ctx context.Context, w tier.Wait) {
			d.note(ctx, time.Now(), "waits %v ahead %d here %t", w.Waited, w.Position, w.Here != nil)
		},
		Acquired: func(ctx context.Context, a tier.AcquiredEvent) {
			d.note(ctx, a.At, "acquired %s after %v", a.From, a.Waited)
		},
		Failed: func(ctx context.Context, f tier.FailedEvent) { d.note(ctx, f.At, "failed after %v", f.Waited) },
		Lost:   func(ctx context.Context, l tier.LostEvent) { d.note(ctx, l.At, "lost by %s", l.Cause) },
		Released: func(ctx context.Context, r tier.ReleasedEvent) {
			d.note(ctx, r.At, "released after %v lost %t", r.Held, errors.Is(r.Err, tier.ErrLost))
		},
		Connection: func(c tier.ConnectionEvent) { d.note(nobody, time.Now(), "%s", c.State) },
	}
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(d.lines, "\n"), strings.Join(want, "\n"))
	}
	if !slices.IsSortedFunc(d.ats, time.Time.Compare) {
		t.Errorf("the times are not in order: %v", d.ats)
	}
	d.lines, d.ats = nil, nil
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

		hold, err := mu.Acquire(caller(t, "A"))
		if err != nil {
			t.Fatal(err)
		}
		d.want(t, "A acquired found after 0s")
		inner, err := mu.Acquire(hold.Context(caller(t, "A")))
		if err != nil {
			t.Fatal(err)
		}
		b := start(caller(t, "B"), mu).blocked(t)
		time.Sleep(3 * time.Second)
		d.want(t, "B waits 1s ahead 0 here true") // once
		ctx, cancel := context.WithTimeout(caller(t, "C"), time.Second/2)
		defer cancel()
		c := start(ctx, mu)
		<-c.done
		d.want(t, "C failed after 500ms")
		if _, err := mu.TryAcquire(caller(t, "D")); !errors.Is(err, tier.ErrLocked) {
			t.Error(err)
		}
		release(t, hold)
		d.want(t) // neither the try nor the release of one hold of two
		time.Sleep(time.Second)
		release(t, inner)
		hold = b.granted(t)
		synctest.Wait()
		d.mu.Lock()
		slices.Sort(d.lines) // between holds there is no order
		d.mu.Unlock()
		d.want(t, "A released after 4.5s lost false", "B acquired hand-off after 4.5s")
		release(t, hold)
		d.want(t, "B released after 0s lost false")

		hold, err = mu.TryAcquire(caller(t, "D"))
		if err != nil {
			t.Fatal(err)
		}
		release(t, hold)
		d.want(t, "D acquired resumption after 0s", "D released after 0s lost false")
	})
}

func TestObserverIsToldOfOtherProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		o := d.observer()
		o.WaitingAfter = 10 * time.Second
		mu := observed(t, s, o).Mutex("/locks/a")
		theirs := acquire(t, process(t, s).Mutex("/locks/a"))
		a := start(caller(t, "A"), mu).blocked(t)
		time.Sleep(9 * time.Second)
		d.want(t, "connected")
		time.Sleep(2 * time.Second)
		d.want(t, "A waits 10s ahead 1 here false")
		release(t, theirs)
		hold := a.granted(t)
		d.want(t, "A acquired hand-over after 11s")
		release(t, hold)
		d.want(t, "A released after 0s lost false")
	})
}

func TestObserverIsToldOfLossesAndTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		locks, p := dial(t, s, "", tier.WithObserver(d.observer()))
		mu := locks.Mutex("/locks/a")
		d.want(t, "connected")
		hold, err := mu.Acquire(caller(t, "A"))
		if err != nil {
			t.Fatal(err)
		}
		d.want(t, "A acquired found after 0s")
		heal := cut(p)
		d.want(t, "suspended")
		heal()
		p.Renew()
		d.want(t, "connected")
		s.Expire("/locks/a", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		d.mu.Lock()
		slices.Sort(d.lines)
		d.mu.Unlock()
		d.want(t, "A lost by session", "connected", "expired")
		if err := hold.Release(); !errors.Is(err, tier.ErrLost) {
			t.Error(err)
		}
		d.want(t, "A released after 2.5s lost true")

		// Nobody but the delete finds out.
		hold, err = mu.Acquire(caller(t, "B"))
		if err != nil {
			t.Fatal(err)
		}
		s.Remove("/locks/a", 0)
		hold.Release()
		d.want(t, "B acquired found after 0s", "B lost by deletion", "B released after 0s lost true")
	})
}

func TestLossOfTheNextHoldIsNotToldOfTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		mu := observed(t, s, d.observer(), tier.WithHandOff(time.Hour)).Mutex("/locks/a")
		hold, err := mu.Acquire(caller(t, "A"))
		if err != nil {
			t.Fatal(err)
		}
		b := start(caller(t, "B"), mu).blocked(t)
		release(t, hold)
		hold = b.granted(t)
		synctest.Wait()
		d.mu.Lock()
		d.lines, d.ats = nil, nil
		d.mu.Unlock()
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		synctest.Wait()
		d.mu.Lock()
		lost := slices.DeleteFunc(slices.Clone(d.lines), func(line string) bool { return !strings.Contains(line, "lost") })
		d.mu.Unlock()
		if !slices.Equal(lost, []string{"B lost by session"}) {
			t.Errorf("told of the losses %q", lost)
		}
		hold.Release()
	})
}

func TestReleaseWaitsUntilTheObserverKnowsOfTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		d := new(diary)
		o := d.observer()
		o.Connection = nil
		o.Lost = func(ctx context.Context, l tier.LostEvent) {
			time.Sleep(time.Minute)
			d.note(ctx, l.At, "lost")
		}
		hold, err := observed(t, s, o).Mutex("/locks/a").Acquire(caller(t, "A"))
		if err != nil {
			t.Fatal(err)
		}
		s.Expire("/locks/a", 0)
		<-hold.Lost()
		synctest.Wait()
		hold.Release()
		d.want(t, "A acquired found after 0s", "A lost", "A released after 0s lost true")
	})
}

func TestCloseWaitsUntilTheObserverKnowsOfTheLosses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		var told []string
		locks := observed(t, s, tier.Observer{Lost: func(_ context.Context, l tier.LostEvent) {
			time.Sleep(time.Minute)
			told = append(told, string(l.Cause)) // the detector sees to it that Close waits
		}})
		hold := acquire(t, locks.Mutex("/locks/a"))
		locks.Close()
		if !slices.Equal(told, []string{"close"}) {
			t.Errorf("told of %q", told)
		}
		hold.Release()
	})
}

// Whichever function of an observer does not return, nobody else waits for it but for the lock.
func TestObserverThatBlocksHoldsUpNobodyElse(t *testing.T) {
	for _, blocks := range []string{"waiting", "acquired", "failed", "lost", "released", "connection"} {
		t.Run(blocks, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Server) {
				until := make(chan struct{})
				block := func(what string, ctx context.Context) {
					if what == blocks && (ctx == nil || ctx.Value(callerKey{}) == "slow") {
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
				other := acquire(t, locks.Mutex("/locks/b"))
				release(t, other)
				close(until)
				<-slow
			})
		})
	}
}

func TestObserverIsForARegistry(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Server) {
		if _, err := process(t, s).Mutex("/locks/a", tier.WithObserver(tier.Observer{})).TryAcquire(t.Context()); err == nil {
			t.Error("one lock got an observer")
		}
	})
}
