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

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/locktest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
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
	for deadline := time.Now().Add(time.Minute); len(slots(t, file)) < 5; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("slots that were run: %v", slots(t, file))
		}
	}
	for _, p := range fleet {
		need.OK(t, p.Process.Signal(syscall.SIGTERM))
		need.WantErr(t, "the end of the service", p.Wait(), nil)
	}
	for slot, runs := range slots(t, file) {
		need.Equal(t, fmt.Sprintf("runs of slot %d", slot), runs, 1)
	}
}

// slots returns how many times each slot was run.
func slots(t *testing.T, file string) map[int64]int {
	text, _ := os.ReadFile(file) // the file does not exist at first
	runs := make(map[int64]int)
	for line := range strings.Lines(string(text)) {
		var pid, slot int64
		need.Get(fmt.Sscan(line, &pid, &slot))(t)
		runs[slot]++
	}
	return runs
}

func TestAProcessWhoseClockIsLateFindsTheSlotTaken(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T, server *zktest.Server) {
		runs := 0
		for _, late := range []time.Duration{0, 60 * time.Millisecond, time.Second} {
			locks := locktest.Dial(t, server)
			time.Sleep(late)
			task := once{job.NewFunctionJob(func(context.Context) (any, error) { runs++; return nil, nil }), locks.Mutex("/a"), time.Second / 2}
			need.WantErr(t, "Execute", task.Execute(t.Context()), nil)
		}
		need.Equal(t, "runs in two slots", runs, 2)
	})
}
