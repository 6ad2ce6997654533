//go:build unix

package gocronlock_test

import (
	"context"
	"errors"
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
	"github.com/tierlock/tierlock/zklock"
	"go.uber.org/goleak"
)

const electedTimeout = 4 * time.Second // of the session of each process

// Of real processes one runs the jobs, until it is killed, or told to end; then the next one does. No slot is run twice,
// although the clock of the last one is late.
func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	server := zkservertest.Start(t, zkserver.Config{TickTime: 200 * time.Millisecond, NoSync: true})
	w := witness.Witness(t.TempDir())
	start := func(ahead time.Duration) *witness.Process {
		return witness.Start(t, "elected", "ZK_SERVERS="+server.Addr(), "WITNESS="+string(w), "AHEAD="+ahead.String())
	}
	first := start(skew)
	ran(t, w, first, time.Now(), time.Minute)
	second := start(skew)
	time.Sleep(electedTimeout / 2) // for it to be in the queue
	third := start(0)
	time.Sleep(electedTimeout / 2)

	killed := time.Now()
	first.Kill()
	took := ran(t, w, second, killed, electedTimeout+2*time.Second)
	t.Logf("the next one ran a job %v after a kill", took)
	time.Sleep(2 * interval)
	ended := time.Now()
	if err := second.Stop(); err != nil {
		t.Errorf("the second process: %v", err)
	}
	took = ran(t, w, third, ended, electedTimeout)
	t.Logf("the next one ran a job %v after the one before was told to end", took)
	time.Sleep(2 * interval)
	if err := third.Stop(); err != nil {
		t.Errorf("the third process: %v", err)
	}

	count := w.Tally(t, "elected-")
	t.Logf("%d slots, %d run twice", count.Slots, count.Twice)
	if count.Twice != 0 {
		t.Errorf("%d of %d slots were run twice", count.Twice, count.Slots)
	}
	entries, err := w.Entries()
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{entries[0].Pid}
	for _, e := range entries {
		if e.Pid != pids[len(pids)-1] {
			pids = append(pids, e.Pid)
		}
	}
	if want := []int{first.Process.Pid, second.Process.Pid, third.Process.Pid}; fmt.Sprint(pids) != fmt.Sprint(want) {
		t.Errorf("jobs were run by processes %v, want %v", pids, want)
	}
}

// ran waits for a run of a process, and returns how long that took.
func ran(t *testing.T, w witness.Witness, p *witness.Process, since time.Time, within time.Duration) time.Duration {
	t.Helper()
	for ; time.Since(since) < within; time.Sleep(10 * time.Millisecond) {
		entries, err := w.Entries()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Pid == p.Process.Pid && e.At.After(since) {
				return e.At.Sub(since).Round(time.Millisecond)
			}
		}
	}
	t.Fatalf("process %d runs nothing within %v", p.Process.Pid, within)
	return 0
}

// lead is what each of the processes does.
func lead() int {
	ahead, err1 := time.ParseDuration(os.Getenv("AHEAD"))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	locks, err2 := tierlock.Dial(ctx, os.Getenv("ZK_SERVERS"), zklock.WithSessionTimeout(electedTimeout))
	if err := errors.Join(err1, err2); err != nil {
		log.Print(err)
		return 1
	}
	elector := gocronlock.NewElector(locks, "/elected", gocronlock.AtLeast(4*skew))
	clock := shifted{clockwork.NewRealClock(), ahead}
	scheduler, err := gocron.NewScheduler(gocron.WithClock(clock), gocron.WithDistributedElector(elector))
	if err == nil {
		err = addJobs(scheduler, clock, "elected", witness.Witness(os.Getenv("WITNESS")))
	}
	if err != nil {
		log.Print(err)
		return 1
	}
	scheduler.Start()
	witness.Stopped()
	if err := errors.Join(scheduler.Shutdown(), elector.Close(), locks.Shutdown(ctx), goleak.Find()); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}
