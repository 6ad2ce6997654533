//go:build unix

package cronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/tierlock/tierlock"
	cronlock "github.com/tierlock/tierlock/adapters/cron"
	"github.com/tierlock/tierlock/internal/witness"
	"github.com/tierlock/tierlock/internal/zkserver"
	"github.com/tierlock/tierlock/internal/zkserver/zkservertest"
	"go.uber.org/goleak"
)

const (
	skew    = 60 * time.Millisecond // between the clocks of the processes
	atLeast = 700 * time.Millisecond
	jobs    = 8 // each once a second
	slots   = 30
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
	for deadline := time.Now().Add(time.Minute); w.Tally(t, "with-").Slots < slots || w.Tally(t, "without-").Slots < slots; {
		if time.Now().After(deadline) {
			t.Fatalf("with AtLeast, without: %+v, %+v; want %d slots", w.Tally(t, "with-"), w.Tally(t, "without-"), slots)
		}
		time.Sleep(time.Second / 4) // what is tested are real processes in real time
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
	if err := errors.Join(err1, err2); err != nil {
		log.Print(err)
		return 1
	}
	scheduler := cron.New()
	w := witness.Witness(os.Getenv("WITNESS"))
	for job := range jobs {
		s := seconds{phase: time.Duration(job) * time.Second / jobs, ahead: ahead}
		for kind, opts := range map[string][]cronlock.Option{"with": {cronlock.AtLeast(atLeast)}, "without": nil} {
			name := fmt.Sprintf("%s-%d", kind, job)
			scheduler.Schedule(s, cronlock.Job(locks.Mutex("/"+name), func(context.Context) {
				if err := w.Work(name, s.slot(time.Now()), func() { time.Sleep(time.Millisecond) }); err != nil {
					log.Print(err)
				}
			}, opts...))
		}
	}
	scheduler.Start()
	witness.Stopped()
	<-scheduler.Stop().Done()
	if err := errors.Join(locks.Shutdown(ctx), goleak.Find()); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

// seconds is a schedule with a slot each second, as a clock sees it that is ahead of the real one.
type seconds struct{ phase, ahead time.Duration }

func (s seconds) Next(t time.Time) time.Time {
	shift := s.phase - s.ahead
	return t.Add(-shift).Truncate(time.Second).Add(time.Second + shift)
}

func (s seconds) slot(t time.Time) int64 { return t.Add(s.ahead - s.phase).Round(time.Second).Unix() }
