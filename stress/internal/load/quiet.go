package load

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Quiet samples the load of the machine this many times (looks), each time after a pause.
const (
	looks = 20
	pause = 10 * time.Millisecond
)

// Quiet reports whether other programs leave at least half of the processors idle in most samples. If the operating system does not show
// its load, Quiet returns true.
func Quiet() bool {
	var running []int
	for range looks {
		time.Sleep(pause)
		running = append(running, runnable())
	}
	slices.Sort(running)
	return 2*running[looks/2] <= runtime.NumCPU()
}

// The function runnable counts the threads on this machine that are running or ready to run. It leaves out the calling thread.
func runnable() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	return runnableIn(string(text))
}

func runnableIn(loadavg string) int {
	if fields := strings.Fields(loadavg); len(fields) > 3 {
		running, _, _ := strings.Cut(fields[3], "/")
		n, _ := strconv.Atoi(running)
		return max(n-1, 0)
	}
	return 0
}
