package interop_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// This benchmark runs Curator alone. Its load is that of stress -bench: 4 processes with 50 threads each on one lock.
//
//	go test ./interop -run '^$' -bench Curator -benchtime 1x -duration 10s
func BenchmarkCurator(b *testing.B) {
	for _, lock := range []struct {
		name, kind string
		turns      string
		all        int
	}{
		{"mutex", "curator", "1", 1},
		{"rw/reads=90", "curator-rw", strings.Repeat(reads+" ", 9) + writes, everything},
		{"rw/reads=99", "curator-rw", strings.Repeat(reads+" ", 99) + writes, everything},
		{"semaphore/permits=10", "curator-semaphore-10", "1", 10},
	} {
		for _, section := range []time.Duration{0, time.Millisecond} {
			b.Run(fmt.Sprintf("%s/section=%v", lock.name, section), func(b *testing.B) {
				e := newEnsemble(b)
				drivers := launch(b, e, sessionTimeout, lock.kind, lock.kind, lock.kind, lock.kind)
				var turns int64
				for b.Loop() {
					for _, d := range drivers {
						d.order(b, "contend %d 50 %d - %d %s", duration.Milliseconds(), section.Milliseconds(), lock.all, lock.turns)
					}
					for _, d := range drivers {
						turns += d.answer(b).Turns
					}
				}
				b.ReportMetric(float64(turns)/b.Elapsed().Seconds(), "turns/s")
			})
		}
	}
}
