package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A lock may be handed off within the process only when the grant is idle: no request that was sent under it can take effect any more. To
// get there, new writes are refused first, and then the process waits for those under way.
func TestGuardedWrites(t *testing.T) {
	fine := func() error { return nil }
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		err := h.Write(t.Context(), func() error {
			need.That(t, "idle while it is checked", !h.Idle())
			return errRefused
		}, func() (Outcome, error) { t.Error("sent"); return Done, nil })
		wantErr(t, "a check that fails", err, errRefused)
		need.That(t, "not idle after a check that fails", h.Idle())
		for outcome, idle := range map[Outcome]bool{Done: true, Denied: true, Failed: true, Unknown: false} {
			err := h.Write(t.Context(), fine, func() (Outcome, error) {
				need.That(t, "idle while it is sent", !h.Idle())
				return outcome, errRefused
			})
			need.That(t, fmt.Sprintf("outcome %v: %v, idle %v", outcome, err, h.Idle()),
				errors.Is(err, errRefused) && errors.Is(err, second.ErrUnknown) != idle && h.Idle() == idle)
			h.pending.Store(0)
		}
		ctx := within(t, time.Second)
		err = h.Write(ctx, fine, func() (Outcome, error) { time.Sleep(2 * time.Second); return Done, nil })
		need.That(t, fmt.Sprintf("a caller that leaves: %v, idle %v", err, h.Idle()),
			errors.Is(err, second.ErrUnknown) && errors.Is(err, context.DeadlineExceeded) && !h.Idle())
		time.Sleep(time.Second + 1)
		need.That(t, "not idle although the answer has come", h.Idle())
		err = h.Write(ctx, fine, func() (Outcome, error) { t.Error("sent"); return Done, nil })
		wantErr(t, "too late", err, context.DeadlineExceeded)
		need.That(t, "too late, and unknown", !errors.Is(err, second.ErrUnknown))
		f.Close()
		wantErr(t, "after Close", h.Write(t.Context(), fine, func() (Outcome, error) { return Done, nil }), second.ErrClosed)
		need.That(t, "not idle after Close", h.Idle())
	})
}

// Release waits for at most a third of the TTL, and not at all while the store cannot be reached. After that, the contender is removed in
// the background. A store that only sends no notifications counts as reachable.
func TestReleaseIsBounded(t *testing.T) {
	slow := func(_ context.Context, _ Command, usual func() Answer) Answer {
		time.Sleep(ttl)
		return usual()
	}
	for name, c := range map[string]struct {
		before func(*fake)
		leave  reply
		after  time.Duration
		sent   int // how many Leave commands were sent when Release returns
	}{
		"slow": {func(*fake) {}, slow, ttl / 3, 1},
		"away": {func(f *fake) { f.then(Beat, never, never); f.noteAway(errAway, true) }, never, 0, 0},
		"deaf": {func(f *fake) { f.Deafen(errRefused) }, late(time.Second / 10), time.Second / 10, 1},
	} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			h := f.acquire(second.Exclusive)
			c.before(f)
			f.then(Leave, c.leave)
			begun := time.Now()
			wantErr(t, name+": Release", h.Release(), nil)
			need.Equal(t, name+": Release took", time.Since(begun), c.after)
			if synctest.Wait(); len(f.ops(Leave)) != c.sent { // a contender that sent more requests would load the store during an outage
				t.Errorf("%s: %d commands, want %d", name, len(f.ops(Leave)), c.sent)
			}
			time.Sleep(ttl)
			f.none()
		})
	}
}

// Err reads the clock. It therefore reports a loss even if no timer has fired.
func TestLossIsSeenByTheClock(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		h := f.acquire(second.Exclusive)
		f.many(Beat, 100, never)
		h.StopWatchdog()
		time.Sleep(ttl - ttl/3 - 1)
		wantErr(t, "before the end", h.Err(), nil)
		if err := h.ErrAt(h.claim.tier.Now() + 1); err != nil && h.Context().Err() == nil {
			t.Errorf("ErrAt: %v, and the context lives", err)
		}
		time.Sleep(1)
		if err := h.Err(); second.CauseOf(err) != second.ByLease || h.Confirm() || !h.ValidUntil().IsZero() || h.Context().Err() == nil {
			t.Errorf("at the end: %v", err)
		}
		h.Release()
	})
}

func TestWhatTellsOfALossReadsTheClock(t *testing.T) {
	for name, ask := range map[string]func(*fake, *Contender) error{
		"the release":             func(_ *fake, h *Contender) error { return h.Release() },
		"the release of a permit": func(_ *fake, h *Contender) error { h.weight.Store(2); return h.releaseSome(1) },
		"news of its removal":     func(f *fake, h *Contender) error { f.Tell(View{ID: h.id, At: 1000}); return h.Err() },
	} {
		play(t, Config{}, func(t *testing.T, f *fake) {
			h := f.acquire(second.Exclusive)
			f.many(Beat, 100, never)
			h.StopWatchdog()
			time.Sleep(ttl)
			need.Equal(t, name+": the cause of the loss", second.CauseOf(ask(f, h)), second.ByLease)
		})
	}
}

// After a writer has become a reader, it still sees the contenders behind it. Only a writer among them makes it contended.
func TestShareIsOneCommandAndAnotherContest(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		f.reader = true
		h := f.acquire(second.Writing)
		old := h.Contended()
		need.That(t, "a reader is not seen to wait", old.Raised())
		f.then(Share, func(_ context.Context, _ Command, usual func() Answer) Answer {
			f.reader = false
			need.That(t, "it writes while the command is under way", h.Shared())
			return usual()
		})
		var all sync.WaitGroup
		for range 3 { // the three calls run at the same time
			all.Go(func() { wantErr(t, "Share", h.Share(t.Context()), nil) })
		}
		all.Wait()
		need.Equal(t, "commands", len(f.ops(Share)), 1)
		need.That(t, "contended by the readers that it has let in", h.Contended() != old && !h.Contended().Raised())
		h.Release()
		f.reader = true
		h = f.acquire(second.Writing)
		if err := h.Share(t.Context()); err != nil || !h.Contended().Raised() { // now a writer waits behind the readers
			t.Errorf("%v; contended by a contender that does not read: %v", err, h.Contended().Raised())
		}
		h.Release()
		f.none()
	})
}

// If the grant is released or lost during a call of Share, that call returns at once.
func TestShareThatIsUnderWayEndsWithTheGrant(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(f *fake, h *Contender)
		want error
	}{
		"release": {func(_ *fake, h *Contender) { h.Release() }, second.ErrReleased},
		"removal": {func(f *fake, h *Contender) { f.Tell(View{ID: h.id, At: 1000}) }, second.ErrLost},
	} {
		for _, answered := range []bool{false, true} {
			play(t, Config{}, func(t *testing.T, f *fake) {
				f.reader = true
				h := f.acquire(second.Writing)
				f.then(Share, func(ctx context.Context, cmd Command, usual func() Answer) Answer {
					c.end(f, h)
					if answered {
						return usual()
					}
					return never(ctx, cmd, nil)
				})
				begun := time.Now()
				if err := h.Share(t.Context()); !errors.Is(err, c.want) || time.Since(begun) != 0 {
					t.Errorf("%s, answered %v: %v after %v, want %v", name, answered, err, time.Since(begun), c.want)
				}
				lost := h.Context().Err() != nil
				need.That(t, fmt.Sprintf("%s, answered %v: lost %v", name, answered, lost), lost == errors.Is(c.want, second.ErrLost))
			})
		}
	}
}

// If the store refuses to take a permit back, that is logged.
func TestPermitsThatCannotBeGivenBack(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		s := need.Get(f.Semaphore("/l", 3, second.Options{}))(t)
		permits, err := s.TryAcquire(t.Context(), 3)
		if err != nil || len(permits) != 3 {
			t.Fatal(permits, err)
		}
		f.then(Weigh, lost, says(Answer{Outcome: Denied, Err: errRefused}))
		wantErr(t, "Release", s.Release(permits[:1]), errRefused)
		f.then(Weigh, never)
		go func() {
			time.Sleep(time.Millisecond)
			wantErr(t, "Release of the last", s.Release(permits[2:]), nil)
		}()
		wantErr(t, "Release of a permit that was released together with the last one", s.Release(permits[1:2]), nil)
		f.none()
		if permits, err = s.TryAcquire(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		f.Close()
		wantErr(t, "Release after Close", s.Release(permits[:1]), second.ErrLost)
	})
}

// If the store refuses a release of some permits, the release is repeated. Otherwise these permits would stay taken until the last permit
// of the same acquisition is given up.
func TestPartThatTheStoreRefusesToTakeBackIsSentAgain(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		s := need.Get(f.Semaphore("/l", 4, second.Options{}))(t)
		permits := need.Get(s.TryAcquire(t.Context(), 4))(t)
		weights := func() (sent []int) {
			for _, c := range f.ops(Weigh) {
				sent = append(sent, c.Weight)
			}
			return sent
		}
		f.many(Weigh, 8, says(Answer{Outcome: Denied, Err: errRefused}))
		wantErr(t, "the first part", s.Release(permits[:1]), errRefused)
		wantErr(t, "the second", s.Release(permits[1:2]), errRefused)
		time.Sleep(time.Minute)
		sent := weights()
		need.Must(t, fmt.Sprintf("sent %v; want each until one is not refused", sent), len(sent) == 9 && sent[0] == 3 && sent[8] == 2)
		f.then(Weigh, says(Answer{Outcome: Denied, Err: errRefused}))
		wantErr(t, "the third", s.Release(permits[2:3]), errRefused)
		time.Sleep(time.Minute)
		need.List(t, "sent for the third", weights()[9:], 1, 1)
		f.many(Weigh, 100, says(Answer{Outcome: Denied, Err: errRefused}))
		p := need.Get(s.TryAcquire(t.Context(), 2))(t)
		wantErr(t, "a part of another", s.Release(p[:1]), errRefused)
		wantErr(t, "the rest", s.Release(p[1:]), nil)
		before := len(weights())
		time.Sleep(time.Minute)
		need.Equal(t, "sent once all is given up", len(weights())-before, 0)
		wantErr(t, "the last", s.Release(permits[3:]), nil)
		f.none()
	})
}

// Only the first waiter takes permits, even if some are free. A waiter for the end of a grace period takes no more permits than it has
// asked for.
func TestOnlyTheFirstBidsForPermits(t *testing.T) {
	play(t, Config{}, func(t *testing.T, f *fake) {
		s := need.Get(f.Semaphore("/l", 3, second.Options{}))(t)
		view := func(v View) reply {
			return func(_ context.Context, _ Command, usual func() Answer) Answer {
				a := usual()
				v.Known, v.Token, v.At, v.Again = true, a.View.Token, a.View.At, time.Second/5
				a.View = v
				return a
			}
		}
		f.then(Enter, view(View{Ahead: 1, Free: 1, Waiting: 1}))
		f.then(Look, view(View{Ahead: 1, Free: 1, Waiting: 1}), view(View{Free: 3, InGracePeriod: true}), view(View{Free: 1}))
		d := &second.Demand{Want: func() int { return 2 }, Take: func(free int) int { return free }}
		begun := time.Now()
		time.AfterFunc(time.Second/10, d.Changed.Set) // the waiter checks the demand and sends nothing
		permits, err := s.Acquire(t.Context(), d)
		if err != nil || len(permits) != 1 || time.Since(begun) != 7*time.Second/10 || len(f.ops(Weigh)) != 1 || d.Others() != 1 {
			t.Errorf("%d permits after %v and %d bids, others %d: %v", len(permits), time.Since(begun), len(f.ops(Weigh)), d.Others(), err)
		}
		wantErr(t, "Release", s.Release(permits), nil)

		f.then(Enter, view(View{Free: 1}))
		f.then(Weigh, late(time.Second/2))
		begun = time.Now()
		_, err = s.Acquire(within(t, time.Second/10), d)
		need.That(t, fmt.Sprintf("left during a bid after %v: %v", time.Since(begun), err),
			errors.Is(err, context.DeadlineExceeded) && time.Since(begun) == time.Second/10)
		time.Sleep(ttl)
		f.none()
	})
}
