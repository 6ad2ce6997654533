//go:build unix

package gocronlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jonboulle/clockwork"
	"github.com/tierlock/tierlock"
	gocronlock "github.com/tierlock/tierlock/adapters/gocron"
	"github.com/tierlock/tierlock/internal/witness"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"go.uber.org/goleak"
)

var slots = flag.Int("slots", 60, "how many slots are to be run by processes whose clocks differ")

const (
	skew     = 60 * time.Millisecond // between the clocks of the processes
	interval = time.Second
	atLeast  = 700 * time.Millisecond
	jobs     = 16 // each with slots of its own
)

// Two real processes with clocks that differ run the same jobs, with AtLeast and without. Either way
// the lock allows no overlap; only AtLeast keeps the process whose clock is late from running a slot again.
func TestWithAtLeastNoSlotRunsTwiceWhereClocksDiffer(t *testing.T) {
	server := zkservertest.Start(t, zkserver.Config{NoSync: true})
	w := witness.Witness(t.TempDir())
	var fleet []*witness.Process
	for _, ahead := range []time.Duration{skew, 0} {
		fleet = append(fleet, witness.Start(t, "scheduler", "ZK_SERVERS="+server.Addr(), "WITNESS="+string(w), "AHEAD="+ahead.String()))
	}
	deadline := time.Now().Add(time.Minute + 2*time.Duration(*slots/jobs)*interval)
	for w.Tally(t, "with-").Slots < *slots || w.Tally(t, "without-").Slots < *slots {
		if time.Now().After(deadline) {
			t.Fatalf("with AtLeast, without: %+v, %+v; want %d slots", w.Tally(t, "with-"), w.Tally(t, "without-"), *slots)
		}
		time.Sleep(interval / 4) // what is tested are real processes in real time
	}
	for _, p := range fleet {
		if err := p.Stop(); err != nil {
			t.Errorf("process %d: %v", p.Process.Pid, err)
		}
	}
	with, without := w.Tally(t, "with-"), w.Tally(t, "without-")
	t.Logf("run twice: with AtLeast %d of %d slots, without %d of %d", with.Twice, with.Slots, without.Twice, without.Slots)
	if with.Twice != 0 {
		t.Errorf("with AtLeast %d of %d slots were run twice", with.Twice, with.Slots)
	}
	if without.Twice == 0 {
		t.Error("without AtLeast no slot was run twice: the clocks do not differ?")
	}
}

// schedule is what each of the processes does.
func schedule() int {
	ahead, err1 := time.ParseDuration(os.Getenv("AHEAD"))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	locks, err2 := tierlock.Dial(ctx, os.Getenv("ZK_SERVERS"))
	clock := shifted{clockwork.NewRealClock(), ahead}
	scheduler, err3 := gocron.NewScheduler(gocron.WithClock(clock))
	if err := errors.Join(err1, err2, err3); err != nil {
		log.Print(err)
		return 1
	}
	w := witness.Witness(os.Getenv("WITNESS"))
	for kind, locker := range map[string]gocron.Locker{
		"with":    gocronlock.NewLocker(locks, "/with", gocronlock.AtLeast(atLeast)),
		"without": gocronlock.NewLocker(locks, "/without"),
	} {
		if err := addJobs(scheduler, clock, kind, w, gocron.WithDistributedJobLocker(locker)); err != nil {
			log.Print(err)
			return 1
		}
	}
	scheduler.Start()
	witness.Stopped()
	if err := errors.Join(scheduler.Shutdown(), locks.Shutdown(ctx), goleak.Find()); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

// addJobs adds jobs that do next to nothing once per interval, one after the other.
func addJobs(scheduler gocron.Scheduler, clock clockwork.Clock, kind string, w witness.Witness, opts ...gocron.JobOption) error {
	for job := range jobs {
		phase := time.Duration(job) * interval / jobs // of the job's slots
		name := fmt.Sprintf("%s-%d", kind, job)
		work := func() {
			slot := clock.Now().Add(-phase).Round(interval).Unix()
			if err := w.Work(name, slot, func() { time.Sleep(time.Millisecond) }); err != nil {
				log.Print(err)
			}
		}
		start := clock.Now().Truncate(interval).Add(2*interval + phase)
		if _, err := scheduler.NewJob(gocron.DurationJob(interval), gocron.NewTask(work), append(opts, gocron.WithName(name),
			gocron.WithStartAt(gocron.WithStartDateTime(start)))...); err != nil {
			return err
		}
	}
	return nil
}

// A shifted clock is ahead of the real one.
type shifted struct {
	clockwork.Clock
	ahead time.Duration
}

func (c shifted) Now() time.Time { return c.Clock.Now().Add(c.ahead) }
