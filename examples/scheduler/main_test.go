//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/internal/test/zkserver/zkservertest"
)

func TestWrongServerIsAnErrorInTime(t *testing.T) { zkservertest.WrongServer(t, serve) }

func TestMain(m *testing.M) { zkservertest.Main(m, main) }

func TestTheOtherProcessTakesOver(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runs")
	server := childtest.Start(t, zkserver.Start, zkserver.Config{NoSync: true})
	fleet := make(map[int]*exec.Cmd)
	for range 2 {
		p := zkservertest.Start(t, "ZK_SERVERS="+server.Addr(), "RUNS="+file)
		fleet[p.Process.Pid] = p
	}
	before := await(t, file, 3, 0)
	victim := before[len(before)-1].pid // the process that is working
	need.OK(t, fleet[victim].Process.Kill())
	before = await(t, file, 3, victim)
	last := before[len(before)-1].slot
	for i, r := range await(t, file, len(before)+3, victim)[len(before):] {
		if late := time.Duration(r.slot-last-1) * time.Second; r.pid == victim || i == 0 && late > session+time.Second || i > 0 && late > 0 {
			t.Errorf("run %d after kill -9 of %d is of slot %d, by %d; the one before was of %d", i, victim, r.slot, r.pid, last)
		}
		last = r.slot
	}
}

type run struct{ pid, slot int }

// await returns the runs when there are n of them. The last run is still in progress, unless its process was killed. If a run began while a
// process that was not killed was still working, await fails.
func await(t *testing.T, file string, n, killed int) (runs []run) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(file) // the file does not exist at first
		working := 0
		runs = nil
		for line := range strings.Lines(string(text)) {
			r, what := run{}, ""
			fmt.Sscan(line, &r.pid, &what, &r.slot)
			if what == "begins" {
				if working != 0 && working != killed {
					t.Fatalf("process %d begins while %d works:\n%s", r.pid, working, text)
				}
				working, runs = r.pid, append(runs, r)
			} else {
				working = 0
			}
		}
		if len(runs) >= n && (working != 0 || killed != 0) {
			return runs
		}
	}
	t.Fatalf("%d runs, want %d", len(runs), n)
	return nil
}
