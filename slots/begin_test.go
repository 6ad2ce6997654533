package slots_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

// schedule starts a process that has a scheduler of its own. The scheduler calls Begin at each minute of its clock, until ctx ends.
func (f *fleet) schedule(
	ctx context.Context, locks *tier.Registry, ahead time.Duration, work func(context.Context, slots.Slot) error,
) (end chan error) {
	job := slots.New(locks.Mutex(path), slots.Every(time.Minute, time.Time{}), slots.OnSlot(f.happened))
	end = make(chan error, 1)
	go func() {
		for {
			now := time.Now().Add(ahead)
			select {
			case <-ctx.Done():
				end <- context.Cause(ctx)
				return
			case <-time.After(now.Truncate(time.Minute).Add(time.Minute).Sub(now)):
			}
			run, err := job.Begin(ctx, time.Now().Add(ahead))
			if err != nil {
				f.refused(err)
				continue
			}
			f.begun(run.Slot())
			run.End(work(run.Context(), run.Slot()))
		}
	}()
	return end
}

func (f *fleet) refused(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs = append(f.errs, err)
}

// The clocks of the schedulers differ by five seconds, and a run takes a millisecond. A lock alone would not keep the late process from
// running the slot again.
func TestSchedulersWhoseClocksDifferBeginEachSlotOnce(t *testing.T) {
	play(t, func(f *fleet) {
		ctx, cancel := context.WithTimeout(f.Context(), 100*time.Minute+30*time.Second)
		defer cancel()
		var ends []chan error
		for _, ahead := range []time.Duration{5 * time.Second, 0, 2 * time.Second, 0} {
			locks := f.connect()
			defer locks.Close()
			ends = append(ends, f.schedule(ctx, locks, ahead, brief))
		}
		for _, end := range ends {
			need.WantErr(t, "the scheduler", <-end, context.DeadlineExceeded)
		}
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprint(i+1))
		}
		need.Equal(t, "slots", f.minutes(), strings.Join(want, " "))
		for _, err := range f.errs {
			need.That(t, fmt.Sprint(err, ", want ErrDone or ErrLocked"), errors.Is(err, slots.ErrDone) || errors.Is(err, tier.ErrLocked))
		}
		need.Len(t, "runs that were refused", f.errs, 300)
		need.Equal(t, "events", f.kinds(), strings.TrimSuffix(strings.Repeat("ran, ", 100), ", "))
	})
}

// A process that calls Run has the lock all the time and runs all slots. When it dies, schedulers take over, and the other way round. Each
// slot still runs once.
func TestBeginAndRunAgreeOnSlots(t *testing.T) {
	play(t, func(f *fleet) {
		ctx, cancel := context.WithTimeout(f.Context(), 12*time.Minute+30*time.Second)
		defer cancel()
		time.Sleep(10 * time.Second) // now the scheduler's clock is past midnight, too
		scheduler := f.connect()
		defer scheduler.Close()
		end := f.schedule(ctx, scheduler, -5*time.Second, brief)
		time.Sleep(150 * time.Second)
		f.alone(4*time.Minute, brief) // from 2:40 to 6:40
		time.Sleep(2 * time.Minute)
		f.alone(2*time.Minute, brief) // from 8:40 to 10:40
		<-end
		need.Equal(t, "slots", f.minutes(), "1 2 3 4 5 6 7 8 9 10 11 12")
		tokens := make(map[int64]bool)
		for _, r := range f.runs[2:6] {
			tokens[r.Token] = true
		}
		need.Equal(t, "holds for the slots of Run", len(tokens), 1)
	})
}

func TestBeginGoesOnAfterACrash(t *testing.T) {
	for end, want := range map[string]string{
		"crash": "lost, skipped 1, skipped 2, ran, ran", // slots 3 and 4 pass before the lock is free
		"fail":  "failed, skipped 2, ran, ran",
	} {
		play(t, func(f *fleet) {
			dying := f.connect()
			defer dying.Close()
			job := slots.New(dying.Mutex(path), slots.Every(time.Minute, time.Time{}), slots.OnSlot(f.happened))
			time.Sleep(2*time.Minute + time.Second)
			run := need.Get(job.Begin(f.Context(), time.Now()))(t)
			need.Equal(t, "the slot", run.Slot().Time.Minute(), 2)
			need.Equal(t, "late", run.Slot().Late, time.Second)
			need.That(t, "the context carries no hold", tier.HoldFrom(run.Context(), dying.Mutex(path)).Token() == run.Slot().Token)
			bad := errors.New("no paper")
			if end == "crash" {
				f.server.CutOff(dying)
				<-run.Context().Done()
				need.WantErr(t, "End of a lost run", run.End(bad), tier.ErrLost)
			} else {
				need.Equal(t, "End of a run that failed", run.End(bad), bad)
			}
			need.WantErr(t, "a second End", run.End(nil), tier.ErrReleased)
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(2*time.Minute + 30*time.Second)))
			ctx, cancel := context.WithTimeout(f.Context(), 2*time.Minute)
			defer cancel()
			locks := f.connect()
			defer locks.Close()
			<-f.schedule(ctx, locks, 0, brief)
			need.Equal(t, "slots after a "+end, f.minutes(), "5 6")
			need.Equal(t, "events after a "+end, f.kinds(), want)
		})
	}
}

// A process that is refused sends at most two requests. The exception is a slot that another process begins and ends between these two.
func TestBeginCostsFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		var mu sync.Mutex
		sent := make(map[string][]string)
		server.Script(func(process string, c queue.Command) (f memory.Fault) {
			mu.Lock()
			defer mu.Unlock()
			if c.Path != "" {
				sent[process] = append(sent[process], string(c.Op))
			}
			return f
		})
		wantSent := func(process, want string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			need.Equal(t, "requests of "+process, strings.Join(sent[process], " "), want)
			delete(sent, process)
		}
		begin := func(process string) (*slots.Job, func()) {
			locks := tier.New(server.Dial(process, 10*time.Second, nil))
			return slots.New(locks.Mutex(path), slots.Every(time.Minute, time.Time{})), func() { locks.Close() }
		}
		winner, closeWinner := begin("winner")
		defer closeWinner()
		loser, closeLoser := begin("loser")
		defer closeLoser()
		for range 2 { // once without a ledger, and once with one
			time.Sleep(time.Minute)
			run := need.Get(winner.Begin(t.Context(), time.Now()))(t)
			wantSent("winner", "load try load save")
			need.WantErr(t, "Begin", need.ErrOf(loser.Begin(t.Context(), time.Now())), slots.ErrDone)
			wantSent("loser", "load")
			need.WantErr(t, "Begin", need.ErrOf(loser.Begin(t.Context(), time.Now().Add(time.Minute))), tier.ErrLocked)
			wantSent("loser", "load try")
			need.OK(t, run.End(nil))
			wantSent("winner", "save leave")
		}
	})
}

// Another process may begin and end the slot when this one has loaded the ledger and does not have the lock yet.
func TestBeginLoadsTheLedgerAgainUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		fast, slow := tier.New(server.Dial("fast", 10*time.Second, nil)), tier.New(server.Dial("slow", 10*time.Second, nil))
		defer fast.Close()
		defer slow.Close()
		server.Script(func(process string, c queue.Command) (f memory.Fault) {
			if process == "slow" && c.Op == queue.Try {
				f.Before = time.Second
			}
			return f
		})
		time.Sleep(time.Minute)
		refused := make(chan error)
		begin := func(locks *tier.Registry) (*slots.Run, error) {
			return slots.New(locks.Mutex(path), slots.Every(time.Minute, time.Time{})).Begin(t.Context(), time.Now())
		}
		go func() { refused <- need.ErrOf(begin(slow)) }()
		synctest.Wait()
		need.OK(t, need.Get(begin(fast))(t).End(nil))
		need.WantErr(t, "Begin", <-refused, slots.ErrDone)
		need.OK(t, need.Get(fast.Mutex(path).TryAcquire(t.Context()))(t).Release()) // shows that no lock is left
		time.Sleep(time.Minute - time.Second)
		run := need.Get(begin(slow))(t)
		need.Equal(t, "late, because the store is slow", run.Slot().Late, time.Second)
		need.OK(t, run.End(nil))

		loads := 0
		server.Script(func(_ string, c queue.Command) (f memory.Fault) {
			if c.Op == queue.Load {
				if loads++; loads == 2 {
					f.Refused = queue.Denied
				}
			}
			return f
		})
		time.Sleep(time.Minute)
		run, err := begin(fast)
		need.That(t, "a run although the ledger could not be loaded under the lock", run == nil && err != nil)
		need.OK(t, need.Get(begin(fast))(t).End(nil))
	})
}

func TestBeginThatFailsLeavesNoLock(t *testing.T) {
	play(t, func(f *fleet) {
		locks := f.connect()
		defer locks.Close()
		begin := func(path string, s slots.Schedule, opts ...slots.Option) error {
			t.Helper()
			run, err := slots.New(locks.Mutex(path), s, opts...).Begin(f.Context(), time.Now())
			need.That(t, path+": a run and an error", (run == nil) == (err != nil))
			if run != nil {
				run.End(nil)
			}
			need.OK(t, need.Get(locks.Mutex(path).TryAcquire(f.Context()))(t).Release())
			return err
		}
		minutes := slots.Every(time.Minute, time.Time{})
		first := time.Now().Add(time.Hour)
		later := func(after time.Time) time.Time {
			if after.Before(first) {
				return first
			}
			return time.Time{}
		}
		never := begin("/never", func(time.Time) time.Time { return time.Time{} })
		need.WantErr(t, "Begin", never, slots.ErrNoSlot)
		need.WantMention(t, never, "/never")
		need.WantMention(t, begin("/back", func(after time.Time) time.Time { return after.Add(-time.Second) }), "/back", "goes backwards")
		run := need.Get(slots.New(locks.Mutex("/ahead"), minutes).Begin(f.Context(), time.Now().Add(time.Hour)))(t)
		need.OK(t, run.End(nil))
		need.WantErr(t, "Begin of a process whose clock is late", begin("/ahead", minutes), slots.ErrDone)
		need.WantMention(t, begin("/ahead", func(after time.Time) time.Time { return after.Add(-time.Second) }), "/ahead", "goes backwards")
		need.WantErr(t, "Begin before the first slot", begin("/later", later), slots.ErrDone)
		time.Sleep(time.Hour)
		need.OK(t, begin("/later", later))
		need.WantErr(t, "Begin after the last slot", begin("/later", later), slots.ErrNoSlot)
		hold := need.Get(locks.Mutex("/other").Acquire(f.Context()))(t)
		need.OK(t, hold.Save(f.Context(), []byte(`{"format":"tierlock slots 2"}`)))
		need.WantMention(t, need.ErrOf(slots.New(locks.Mutex("/other"), minutes).Begin(hold.Context(f.Context()), time.Now())), "Hold.Forget")
		need.OK(t, hold.Forget(f.Context()))
		need.WantErr(t, "Begin under a hold of its lock",
			need.ErrOf(slots.New(locks.Mutex("/other"), minutes).Begin(hold.Context(f.Context()), time.Now())), tier.ErrLocked)
		need.OK(t, hold.Release())
		need.OK(t, begin("/other", minutes))
		time.Sleep(time.Hour)
		need.WantErr(t, "Begin long after the last slot", begin("/past", later), slots.ErrNoSlot)
		ctx, cancel := context.WithCancel(f.Context())
		canceling := func(after time.Time) time.Time {
			if after.Minute() == 30 {
				cancel()
			}
			return minutes(after)
		}
		need.WantErr(t, "Begin whose ctx ends", need.ErrOf(slots.New(locks.Mutex("/other"), canceling).Begin(ctx, time.Now())), context.Canceled)
		func() {
			defer func() { need.That(t, "OnSlot did not panic", recover() != nil) }()
			begin("/other", minutes, slots.OnSlot(func(slots.Event) { panic("a test") }))
		}()
		need.OK(t, need.Get(locks.Mutex("/other").TryAcquire(f.Context()))(t).Release())

		f.server.CutOff(locks)
		start := time.Now()
		_, err := slots.New(locks.Mutex("/other"), minutes).Begin(f.Context(), start)
		need.WantErr(t, "Begin without the store", err, tier.ErrUnavailable)
		need.AtMost(t, "Begin waited for the store for", time.Since(start), 10*time.Second)
	})
}

// Without a ledger, the first Begin runs the newest slot of the schedule. That works for slots that are seconds apart, and for slots that
// are years apart.
func TestFirstBeginFindsTheNewestSlot(t *testing.T) {
	for _, interval := range []time.Duration{time.Second, 7 * time.Minute, 30 * 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		play(t, func(f *fleet) {
			locks := f.connect()
			defer locks.Close()
			now := time.Now().Add(1234567 * time.Microsecond)
			every := slots.Every(interval, time.Time{})
			job := slots.New(locks.Mutex(path), func(after time.Time) time.Time {
				need.That(t, "the schedule is asked for the beginning of time", !after.IsZero())
				return every(after)
			}, slots.OnSlot(f.happened))
			run := need.Get(job.Begin(f.Context(), now))(t)
			need.Equal(t, "the slot", run.Slot().Time, now.UTC().Truncate(interval))
			need.OK(t, run.End(nil))
			need.Equal(t, "events", f.kinds(), "ran")
		})
	}
}

// Some processes have schedulers, and the others call Run. All of them may die, be cut off, and lose sessions and answers.
func TestRandomFaultsWithSchedulers(t *testing.T) {
	for seed := range *seeds {
		play(t, func(f *fleet) {
			f.schedulers = true
			randomFaults(f, rand.New(rand.NewPCG(seed, 4)), slots.Skip)
			need.That(t, "no scheduler was refused", slices.ContainsFunc(f.errs, func(err error) bool { return errors.Is(err, slots.ErrDone) }))
		})
	}
}
