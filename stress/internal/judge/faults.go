package judge

import "github.com/tierlock/tierlock/stress/internal/clock"

// Faults are the faults that were injected into workers and servers.
type Faults struct {
	Counts       map[string]int64 // by kind
	Disturbances []Disturbance
	Stops        []Stop
	Deaths       map[int]clock.Instant // when processes that were killed had certainly left their sections, by process
	Unhealed     []error               // errors of faults that could not be undone
}

// Disturbance is the time from the beginning of a fault until it was undone.
type Disturbance struct {
	Kind        string
	From, Until clock.Instant
}

// Stop is a time in which a process was paused: it executed no instruction.
type Stop struct {
	Process     int
	From, Until clock.Instant
}

// Died records that a process was killed, and has ended.
func (f *Faults) Died(process int) {
	if f.Deaths == nil {
		f.Deaths = map[int]clock.Instant{}
	}
	f.Deaths[process] = clock.Now()
}
