package clock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
	"github.com/tierlock/tierlock/internal/test/need"
)

func TestSleepCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		time.Sleep(time.Minute)
		need.Equal(t, "a minute awake", c.Now(), time.Minute)
		c.Suspend(time.Hour)
		need.Equal(t, "and an hour asleep", c.Now(), time.Hour+time.Minute)
		time.Sleep(time.Minute)
		c.Suspend(time.Hour)
		need.Equal(t, "and once more", c.Now(), 2*time.Hour+2*time.Minute)
	})
}

// If NTP or an operator sets the wall clock, the difference does not count as sleep.
func TestAStepOfTheWallClockDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		for _, step := range []time.Duration{time.Hour, -2 * time.Hour, time.Millisecond} {
			c.Step(step)
			c.Ask()
			need.Equal(t, "the time", c.Now(), 0)
		}
	})
}

// A machine may sleep many times, each time for too short a time to be noticed. The clock still includes the sum.
func TestSleepTooShortToSeeAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		for range 9 {
			c.Suspend(time.Millisecond)
			need.Equal(t, "not asked yet", c.Now(), 0)
		}
		c.Suspend(2 * time.Millisecond)
		need.Equal(t, "the sleep", c.Now(), 11*time.Millisecond)
		c.Suspend(time.Millisecond)
		need.Equal(t, "the time after another short sleep", c.Now(), 11*time.Millisecond)
		c.Ask()
		need.Equal(t, "the time after a renewal has asked", c.Now(), 12*time.Millisecond)
	})
}

// The wall clock may be set back by exactly the time that the machine slept. Ask detects the sleep nevertheless.
func TestAskSeesTheSleepThatAStepHides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		c.Suspend(time.Hour)
		c.Step(-time.Hour)
		need.Equal(t, "the time on the clocks", c.Now(), 0)
		c.Ask()
		need.Equal(t, "the time of the system", c.Now(), time.Hour)
	})
}

func TestTimeNeverGoesBack(t *testing.T) {
	c := clock.New()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			before := c.Now()
			for range 10_000 {
				now := c.Now()
				if now < before {
					t.Errorf("%v after %v", now, before)
					return
				}
				before = now
			}
		})
	}
	for range 1000 {
		c.Suspend(time.Second)
		c.Step(-time.Hour)
		c.Ask()
	}
	all.Wait()
	c.Suspend(-time.Minute) // acts as a system that reports less sleep than before
	if now := c.Now(); now < 1000*time.Second {
		t.Errorf("%v after a sleep of 1000 s", now)
	}
}

// The test reads the real clocks. Therefore it does not run in a bubble of testing/synctest.
func TestOnAMachineThatDoesNotSleepTheClockIsTheMonotonicOne(t *testing.T) {
	c, start := clock.New(), time.Now()
	c.Ask()
	if ahead := c.Now() - time.Since(start); ahead > time.Second { // a second is allowed, because the process may be paused in New
		t.Errorf("it is %v ahead", ahead)
	}
	c.Step(time.Hour) // makes the next Now ask the system
	if ahead := c.Now() - time.Since(start); ahead > time.Second {
		t.Errorf("it is %v ahead after a step of the wall clock", ahead)
	}
}

func TestLookAtTheClockAllocatesNothing(t *testing.T) {
	c := clock.New()
	need.Equal(t, "allocations", testing.AllocsPerRun(100, func() { c.Now() }), 0)
}

// A timer stops while the machine sleeps. Long waits are therefore split into short timers, and a wait ends soon after the machine wakes
// up.
func TestATimerSeesTheEndSoonAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		c.Suspend(time.Hour)
		begun := time.Now()
		for left := c.Left(2 * time.Hour); left > 0; left = c.Left(2 * time.Hour) {
			time.Sleep(left)
			c.Suspend(time.Minute)
		}
		need.That(t, "more time awake than a timer runs for each minute asleep", time.Since(begun) <= 60*time.Second/4)
		need.Equal(t, "whether the rest of a time that has passed is negative", c.Left(0) < 0, true)
	})
}

func BenchmarkNow(b *testing.B) {
	c := clock.New()
	for b.Loop() {
		c.Now()
	}
}

// BenchmarkSince measures time.Since for comparison, because the leases used it before this clock existed.
func BenchmarkSince(b *testing.B) {
	start := time.Now()
	for b.Loop() {
		time.Since(start)
	}
}

func BenchmarkAsk(b *testing.B) {
	c := clock.New()
	for b.Loop() {
		c.Ask()
	}
}
