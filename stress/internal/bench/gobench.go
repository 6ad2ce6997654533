package bench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// goBench is a benchmark of package testing, run several times.
type goBench struct {
	Name   string    `json:"name"`
	NS     []float64 `json:"ns_per_op"`
	Allocs []float64 `json:"allocs_per_op"`
}

// goGoals are what single calls are held against, by benchmark.
var goGoals = map[string][]struct {
	goal
	figures func(goBench) []float64
}{
	"Linger": {
		{goal{trial: "acquire and release, node kept", figure: "time", limit: 400, atMost: true, unit: " ns"}, nanoseconds},
		{goal{trial: "acquire and release, node kept", figure: "allocations", limit: 2, atMost: true}, allocations},
	},
	"HandOff": {
		{goal{trial: "a turn among a hundred goroutines", figure: "allocations", limit: 2, atMost: true}, allocations},
	},
	"Reentry": {
		{goal{trial: "enter again and release", figure: "time", limit: 100, atMost: true, unit: " ns"}, nanoseconds},
	},
}

func nanoseconds(b goBench) []float64 { return b.NS }
func allocations(b goBench) []float64 { return b.Allocs }

// addGoBench runs the benchmarks of package tier. It needs the go command and the
// sources.
func (b *benchmark) addGoBench(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark(Linger|HandOff|Reentry)$", "-benchmem",
		"-count", strconv.Itoa(rounds), "github.com/tierlock/tierlock/tier")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go test: %w: %s", err, bytes.TrimSpace(out))
	}
	b.GoBench = parseGoBench(string(out))
	if len(b.GoBench) < len(goGoals) {
		return fmt.Errorf("go test ran %d benchmarks, and the goals are about %d", len(b.GoBench), len(goGoals))
	}
	for _, found := range b.GoBench {
		for _, g := range goGoals[found.Name] {
			j, err := g.hold(g.figures(found), nil)
			if err != nil {
				return err
			}
			b.Goals = append(b.Goals, j)
		}
	}
	return nil
}

// parseGoBench reads lines such as "BenchmarkX-2  887582  394.3 ns/op  1 allocs/op".
func parseGoBench(out string) (all []goBench) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "Benchmark"), "-")
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, goBench{Name: name})
		}
		b := &all[len(all)-1]
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			switch {
			case err != nil:
			case fields[i+1] == "ns/op":
				b.NS = append(b.NS, v)
			case fields[i+1] == "allocs/op":
				b.Allocs = append(b.Allocs, v)
			}
		}
	}
	return all
}
