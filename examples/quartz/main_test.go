//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reugn/go-quartz/job"
	"github.com/reugn/go-quartz/quartz"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
	"github.com/tierlock/tierlock/slots"
	"github.com/tierlock/tierlock/zklock/zktest"
)

func TestWrongServerIsAnErrorInTime(t *testing.T) { zkservertest.WrongServer(t, serve) }

func TestMain(m *testing.M) { zkservertest.Main(m, main) }

func TestEachSlotIsRunByOneProcess(t *testing.T) {
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
	file := filepath.Join(t.TempDir(), "runs")
	fleet := make([]*exec.Cmd, 2)
	for i := range fleet {
		fleet[i] = zkservertest.Start(t, "ZK_SERVERS="+server.Addr(), "RUNS="+file)
	}
	for deadline := time.Now().Add(time.Minute); len(runsOf(t, file)) < 5; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("slots that were run: %v", runsOf(t, file))
		}
	}
	for _, p := range fleet {
		need.OK(t, p.Process.Signal(syscall.SIGTERM))
		need.WantErr(t, "the end of the service", p.Wait(), nil)
	}
	for slot, runs := range runsOf(t, file) {
		need.Equal(t, fmt.Sprintf("runs of slot %d", slot), runs, 1)
	}
}

// runsOf returns how many times each slot was run.
func runsOf(t *testing.T, file string) map[int64]int {
	text, _ := os.ReadFile(file) // the file does not exist at first
	runs := make(map[int64]int)
	for line := range strings.Lines(string(text)) {
		var pid, slot int64
		need.Get(fmt.Sscan(line, &pid, &slot))(t)
		runs[slot]++
	}
	return runs
}

// The clocks differ by five seconds, and the job returns at once. The process whose clock is late must not run the slot again. A job that
// panics does not keep the lock.
func TestAProcessWhoseClockIsLateFindsThatTheSlotWasBegun(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, server *zktest.Server) {
		trigger := need.Get(quartz.NewCronTriggerWithLoc("0 * * * * *", time.UTC))(t)
		runs := 0
		execute := func() error {
			work := job.NewFunctionJob(func(context.Context) (any, error) {
				if runs++; runs == 2 {
					panic("a job's")
				}
				return nil, nil
			})
			task := once{work, slots.New(locktest.Dial(t, server).Mutex("/a"), scheduleOf(trigger))}
			defer func() { _ = recover() }()
			return task.Execute(t.Context())
		}
		for slot := range 3 {
			need.WantErr(t, "Execute", execute(), nil)
			need.Equal(t, "runs", runs, slot+1)
			time.Sleep(5 * time.Second)
			need.WantErr(t, "Execute", execute(), nil)
			need.Equal(t, "runs", runs, slot+1)
			time.Sleep(55 * time.Second)
		}
	})
}
