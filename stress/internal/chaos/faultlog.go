package chaos

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/judge"
)

// faultLog records the faults that were injected.
type faultLog struct {
	stderr io.Writer
	begin  clock.Instant

	mu     sync.Mutex // guards the faults
	faults judge.Faults
}

// did records a fault that began at from. The fault was healed just now; if err is not nil, it could not be healed.
func (d *faultLog) did(kind string, from clock.Instant, err error) {
	until := clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.Counts[kind]++
	d.faults.Disturbances = append(d.faults.Disturbances, judge.Disturbance{Kind: kind, From: from, Until: until})
	if err != nil {
		d.faults.Unhealed = append(d.faults.Unhealed, fmt.Errorf("%s: %w", kind, err))
	}
	fmt.Fprintf(d.stderr, "%7.3fs  %s, for %v\n", from.Sub(d.begin).Seconds(), kind, until.Sub(from).Round(time.Millisecond))
}

// died records that a worker was killed, and has ended.
func (d *faultLog) died(process int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.Died(process)
}

func (d *faultLog) stopped(s judge.Stop) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults.Stops = append(d.faults.Stops, s)
}
