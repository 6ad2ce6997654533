package slots_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tierlock/tierlock/internal/memory"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/memlock"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const path = "/jobs/report"

// A fleet is a number of processes that run one job in virtual time. Virtual time begins at midnight.
type fleet struct {
	*testing.T
	server *memlock.Server
	opts   []slots.Option

	schedulers bool // some processes of random faults have schedulers

	mu     sync.Mutex // guards the fields below
	runs   []*run     // in the order of their beginnings
	events []slots.Event
	done   map[time.Time]bool // the slots whose outcome was written
	errs   []error            // of runs that Begin refused
}

// A run is a call of the job.
type run struct {
	slots.Slot
	at time.Time
}

func (f *fleet) connect() *tier.Registry {
	return need.Get(f.server.Connect(tier.WithLeaseTTL(10 * time.Second)))(f.T)
}

// begin starts a process. The process runs until its context ends.
func (f *fleet) begin(
	ctx context.Context, locks *tier.Registry, work func(context.Context, slots.Slot) error, opts ...slots.Option,
) (end chan error) {
	opts = append(slices.Concat(f.opts, opts), slots.OnSlot(f.happened))
	job := slots.New(locks.Mutex(path), slots.Every(time.Minute, time.Time{}), opts...)
	end = make(chan error, 1)
	go func() {
		end <- job.Run(ctx, func(ctx context.Context, slot slots.Slot) error {
			f.begun(slot)
			return work(ctx, slot)
		})
	}()
	return end
}

// happened records an event.
func (f *fleet) happened(e slots.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
	need.Equal(f, "the path of an event", e.Path, path)
	if e.Kind == slots.Ran {
		f.done[e.Slot.Time] = true
	}
}

// begun records the beginning of a run.
func (f *fleet) begun(slot slots.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs = append(f.runs, &run{slot, time.Now()})
	if f.done[slot.Time] {
		f.Errorf("%v runs again although it is done", slot.Time)
	}
}

func play(t *testing.T, test func(f *fleet), opts ...slots.Option) {
	synctest.Test(t, func(t *testing.T) {
		test(&fleet{T: t, server: memlock.NewServer(), opts: opts, done: make(map[time.Time]bool)})
	})
}

// alone runs one process for the time d.
func (f *fleet) alone(d time.Duration, work func(context.Context, slots.Slot) error, opts ...slots.Option) error {
	ctx, cancel := context.WithTimeout(f.Context(), d)
	defer cancel()
	locks := f.connect()
	defer locks.Close()
	return <-f.begin(ctx, locks, work, opts...)
}

// minutes returns the slots that ran, as minutes of the day. After a slot that did not run at the first attempt comes the number of the
// attempt.
func (f *fleet) minutes() string {
	var all []string
	for _, r := range f.runs {
		one := fmt.Sprint(r.Time.Hour()*60 + r.Time.Minute())
		if r.Attempt > 1 {
			one += fmt.Sprintf("(%d)", r.Attempt)
		}
		all = append(all, one)
	}
	return strings.Join(all, " ")
}

// The method kinds returns the kinds of the reported events.
func (f *fleet) kinds() string {
	var all []string
	for _, e := range f.events {
		if e.Kind == slots.Started { // each run has one
			continue
		}
		one := string(e.Kind)
		if e.Kind == slots.Skipped {
			one += fmt.Sprintf(" %d", e.Count)
		}
		all = append(all, one)
	}
	return strings.Join(all, ", ")
}

func brief(context.Context, slots.Slot) error {
	time.Sleep(time.Millisecond)
	return nil
}

func TestEachSlotRunsOnceAmongProcessesWhoseClocksDiffer(t *testing.T) {
	play(t, func(f *fleet) {
		ctx, cancel := context.WithTimeout(f.Context(), 10*time.Minute+10*time.Second) // long enough for the process whose clock is late
		defer cancel()
		var ends []chan error
		for i := range 3 {
			locks := f.connect()
			defer locks.Close()
			ends = append(ends, f.begin(ctx, locks, brief, slots.WithClock(time.Duration(5*(1-i))*time.Second)))
			if i == 0 {
				synctest.Wait()
			}
		}
		time.Sleep(5*time.Minute + 30*time.Second)
		operator := f.connect()
		defer operator.Close()
		need.OK(t, operator.Mutex(path).Revoke(ctx))
		for _, end := range ends {
			need.WantErr(t, "Run", <-end, context.DeadlineExceeded)
		}
		need.Equal(t, "slots", f.minutes(), "1 2 3 4 5 6 7 8 9 10")
		need.That(t, "the lock stayed where it was when it was asked for",
			f.runs[5].Token > f.runs[4].Token && f.runs[4].Token == f.runs[0].Token)
	})
}

func TestSlotCostsTwoWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memory.NewServer()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
		defer cancel()
		var before int64
		for range 3 {
			locks := tier.New(server.Dial("p", 10*time.Second, nil))
			defer locks.Close()
			go slots.New(locks.Mutex(path), slots.Every(time.Minute, time.Time{})).Run(ctx, func(context.Context, slots.Slot) error {
				if before == 0 {
					before = server.Writes() // this count includes one write for the present slot
				}
				return nil
			})
		}
		time.Sleep(10*time.Minute + time.Second/2)
		need.Equal(t, "writes for ten slots, but the first", server.Writes()-before, 19)
		<-ctx.Done()
		synctest.Wait()
	})
}

func TestMissedSlotsAreCaughtUpAsWasSaid(t *testing.T) {
	for n, want := range map[int][2]string{
		0:         {"1 2 9 10", "ran, ran, skipped 6, ran, ran"},
		1:         {"1 2 8 9 10", "ran, ran, skipped 5, caught-up, ran, ran, ran"},
		2:         {"1 2 7 8 9 10", "ran, ran, skipped 4, caught-up, ran, caught-up, ran, ran, ran"},
		slots.All: {"1 2 3 4 5 6 7 8 9 10", "ran, ran" + strings.Repeat(", caught-up, ran", 6) + ", ran, ran"},
	} {
		play(t, func(f *fleet) {
			need.WantErr(t, "Run", f.alone(150*time.Second, brief), context.DeadlineExceeded)
			time.Sleep(6 * time.Minute)
			need.WantErr(t, "Run", f.alone(130*time.Second, brief), context.DeadlineExceeded)
			need.Equal(t, fmt.Sprintf("slots with CatchUp(%d)", n), f.minutes(), want[0])
			need.Equal(t, fmt.Sprintf("events with CatchUp(%d)", n), f.kinds(), want[1])
		}, slots.CatchUp(n))
	}
}

func TestSlotsThatPassDuringALongRunAreMissedOnes(t *testing.T) {
	play(t, func(f *fleet) {
		f.alone(7*time.Minute+time.Second, func(context.Context, slots.Slot) error {
			time.Sleep(150 * time.Second)
			return nil
		})
		need.Equal(t, "slots", f.minutes(), "1 3 6") // slot 1 ends at 3:30, and slot 3 at 6:00
	})
}

// crash makes a process die in the middle of a run. The process writes nothing after that.
func crash(f *fleet, opts ...slots.Option) {
	locks := f.connect()
	defer locks.Close()
	ctx, cancel := context.WithCancel(f.Context())
	end := f.begin(ctx, locks, func(ctx context.Context, slot slots.Slot) error {
		if slot.Time.Minute() != 2 {
			return nil
		}
		f.server.CutOff(locks)
		cancel()
		return nil
	}, opts...)
	<-end
}

func TestSlotWhoseProcessCrashedIsSkippedOrRetriedAsWasSaid(t *testing.T) {
	for policy, want := range map[slots.Policy][2]string{
		slots.Skip:  {"1 2 3 4", "ran, lost, skipped 1, ran, ran"},
		slots.Retry: {"1 2 2(2) 3 4", "ran, lost, retried, ran, ran, ran"},
	} {
		play(t, func(f *fleet) {
			crash(f)
			f.alone(2*time.Minute+10*time.Second, brief)
			need.Equal(t, "slots", f.minutes(), want[0])
			need.Equal(t, "events", f.kinds(), want[1])
			if last := f.runs[len(f.runs)-1]; last.Token <= f.runs[0].Token {
				t.Errorf("token %d after %d", last.Token, f.runs[0].Token)
			}
		}, slots.AfterCrash(policy))
	}
}

func TestSlotThatFailedRunsAgainUpToTheLimitWithGrowingPauses(t *testing.T) {
	play(t, func(f *fleet) {
		f.alone(4*time.Minute+time.Second, func(_ context.Context, slot slots.Slot) error {
			if slot.Time.Minute() == 1 {
				return errors.New("no paper")
			}
			return nil
		})
		need.Equal(t, "slots", f.minutes(), "1 1(2) 1(3) 2 3 4")
		begun := f.runs[0].at
		need.Equal(t, "pauses", fmt.Sprint(f.runs[1].at.Sub(begun), f.runs[2].at.Sub(begun)), "10s 30s")
		need.Equal(t, "events", f.kinds(), "failed, retried, failed, retried, failed, ran, ran, ran")
	}, slots.AfterError(2, 10*time.Second))
}

// If the context of a process ends during a run, the run counts as crashed, and not as failed.
func TestRunThatTheEndOfItsContextInterruptsCountsAsCrashed(t *testing.T) {
	play(t, func(f *fleet) {
		f.alone(90*time.Second, func(ctx context.Context, _ slots.Slot) error {
			<-ctx.Done()
			return ctx.Err()
		})
		f.alone(time.Minute, brief)
		need.Equal(t, "slots", f.minutes(), "1 1(2) 2")
	}, slots.AfterCrash(slots.Retry))
	play(t, func(f *fleet) { // a run that has finished counts as done
		f.alone(90*time.Second, func(ctx context.Context, _ slots.Slot) error {
			<-ctx.Done()
			return nil
		})
		f.alone(time.Minute, brief)
		need.Equal(t, "slots", f.minutes(), "1 2")
	}, slots.AfterCrash(slots.Retry))
}

func TestBadSchedulesAndForeignLedgersAreRefusedByName(t *testing.T) {
	play(t, func(f *fleet) {
		locks := f.connect()
		defer locks.Close()
		run := func(path string, s slots.Schedule) error {
			ctx, cancel := context.WithTimeout(f.Context(), time.Hour)
			defer cancel()
			return slots.New(locks.Mutex(path), s).Run(ctx, brief)
		}
		never := run("/never", func(time.Time) time.Time { return time.Time{} })
		need.WantErr(t, "Run", never, slots.ErrNoSlot)
		need.WantMention(t, never, "/never")
		need.WantMention(t, run("/back", func(after time.Time) time.Time { return after.Add(-time.Second) }), "/back", "goes backwards")
		need.WantMention(t, run("/stays", func(after time.Time) time.Time { return after }), "/stays", "goes backwards")
		hold := need.Get(locks.Mutex("/other").Acquire(f.Context()))(t)
		need.OK(t, hold.Save(f.Context(), []byte(`{"format":"tierlock slots 2"}`)))
		need.OK(t, hold.Release())
		need.WantMention(t, run("/other", slots.Every(time.Second, time.Time{})), "/other", "tierlock slots 1", "Hold.Forget")
	})
}

func TestEveryCountsFromItsOrigin(t *testing.T) {
	at := func(text string) time.Time { return need.Get(time.Parse(time.DateTime, text))(t) }
	s := slots.Every(7*time.Minute, at("2026-01-01 00:03:00"))
	for after, want := range map[string]string{
		"2026-01-01 00:03:00": "2026-01-01 00:10:00",
		"2026-01-01 00:02:59": "2026-01-01 00:03:00",
		"2026-01-01 00:09:59": "2026-01-01 00:10:00",
		"2025-12-31 23:55:00": "2025-12-31 23:56:00",
	} {
		need.Equal(t, "after "+after, s(at(after)), at(want))
	}
}

// In these schedules, processes die, are cut off, and lose sessions and answers at random. Their clocks differ by up to five seconds.
var seeds = flag.Uint64("seeds", 1, "run `N` random schedules of each policy")

func TestRandomFaults(t *testing.T) {
	for seed := range *seeds {
		for _, policy := range []slots.Policy{slots.Skip, slots.Retry} {
			play(t, func(f *fleet) { randomFaults(f, rand.New(rand.NewPCG(seed, 1)), policy) }, slots.AfterCrash(policy), slots.CatchUp(slots.All))
		}
	}
}

func randomFaults(f *fleet, random *rand.Rand, policy slots.Policy) {
	const many = 300
	over, end := context.WithTimeout(f.Context(), many*time.Minute)
	defer end()
	var processes sync.WaitGroup
	for range 3 {
		dice := rand.New(rand.NewPCG(random.Uint64(), 2))
		processes.Go(func() {
			for over.Err() == nil {
				life(f, over, dice)
			}
		})
	}
	processes.Wait()
	for range 20 { // these processes run the remaining slots
		f.alone(2*time.Minute, brief)
	}
	last, seen := time.Time{}, make(map[time.Time]*run)
	for _, r := range f.runs {
		before := seen[r.Time]
		switch {
		case before != nil && policy == slots.Skip:
			f.Errorf("%v ran twice", r.Time)
		case before == nil && !last.IsZero() && policy == slots.Retry && !r.Time.Equal(last.Add(time.Minute)):
			f.Errorf("%v came after %v", r.Time, last)
		case before == nil && !r.Time.After(last):
			f.Errorf("%v came after %v", r.Time, last)
		}
		if seen[r.Time] = r; before == nil {
			last = r.Time
		}
	}
	least := many - 5
	if f.schedulers { // a scheduler misses slots during a long run, and until the lease of a dead process ends
		least = many / 2
	}
	if len(seen) < least {
		f.Errorf("%d slots in %d minutes", len(seen), many)
	}
}

// duration returns how long a job takes: 1 ms, some seconds, or several intervals.
func duration(dice *rand.Rand) time.Duration {
	switch dice.IntN(20) {
	case 0:
		return time.Duration(dice.IntN(240)) * time.Second
	case 1, 2, 3, 4:
		return time.Millisecond
	}
	return time.Duration(dice.ExpFloat64() * float64(15*time.Second))
}

// life runs one process, with faults, until the process dies.
func life(f *fleet, over context.Context, dice *rand.Rand) {
	locks := f.connect()
	defer locks.Close()
	ctx, kill := context.WithCancel(over)
	defer kill()
	durations := rand.New(rand.NewPCG(dice.Uint64(), 3)) // a source of its own, because a job runs at the same time as the faults
	work := func(ctx context.Context, _ slots.Slot) error {
		select {
		case <-time.After(duration(durations)):
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	var ended chan error
	if ahead := time.Duration(dice.IntN(5000)) * time.Millisecond; f.schedulers && dice.IntN(4) > 0 {
		ended = f.schedule(ctx, locks, ahead, work)
	} else {
		ended = f.begin(ctx, locks, work, slots.WithClock(ahead))
	}
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(dice.ExpFloat64() * float64(5*time.Minute))):
		}
		switch dice.IntN(5) {
		case 0:
			f.server.CutOff(locks) // this process dies while it is cut off
			kill()
			<-ended
			return
		case 1:
			heal := f.server.CutOff(locks)
			time.Sleep(time.Duration(dice.IntN(20)) * time.Second)
			heal()
		case 2:
			f.server.Expire(locks)
		case 3:
			f.server.LoseAnswers(locks, 1+dice.IntN(3))
		case 4:
			kill()
			<-ended
			return
		}
	}
}
