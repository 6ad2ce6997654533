package load

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
)

// Kill ends the worker like kill -9, and reports whether the worker was alive until then.
func (e *Child) Kill() (alive bool) {
	select {
	case <-e.gone:
	default:
		alive = true
		_ = e.Cmd.Process.Kill() // an error means only that the process has already ended
	}
	<-e.gone
	return alive
}

// Pause stops the worker with a signal, and reports whether all its threads have stopped.
func (e *Child) Pause() bool {
	if child.Pause(e.Cmd.Process) != nil {
		return false
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !e.paused() {
		select {
		case <-e.gone:
			return false
		case <-tick.C:
		}
	}
	return true
}

// The method paused reports whether all threads of the worker have stopped. If the operating system does not show that, paused returns
// true.
func (e *Child) paused() bool {
	threads := fmt.Sprintf("/proc/%d/task", e.Cmd.Process.Pid)
	entries, err := os.ReadDir(threads)
	if err != nil {
		return true
	}
	for _, thread := range entries {
		stat, err := os.ReadFile(threads + "/" + thread.Name() + "/stat")
		if err != nil {
			continue // the thread has ended
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// Resume continues a worker that was paused.
func (e *Child) Resume() { _ = child.Resume(e.Cmd.Process) }
