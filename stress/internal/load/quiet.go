package load

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// looks are how often the machine is looked at, each after a pause.
const (
	looks = 20
	pause = 10 * time.Millisecond
)

// Quiet reports whether others leave most of the processors alone, at most looks. A system that does not tell counts as quiet.
func Quiet() bool {
	var running []int
	for range looks {
		time.Sleep(pause)
		running = append(running, runnable())
	}
	slices.Sort(running)
	return 2*running[looks/2] <= runtime.NumCPU()
}

// runnable is how many threads of the machine have a processor or want one, without this one.
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
