package judge

import "github.com/tierlock/tierlock/stress/internal/clock"

// Faults is what was done to workers and servers.
type Faults struct {
	Counts       map[string]int64 // by kind
	Disturbances []Disturbance
	Stops        []Stop
	Unhealed     []error // of those that could not be undone
}

// Disturbance is a fault, from its beginning until it was healed.
type Disturbance struct {
	Kind        string
	From, Until clock.Instant
}

// Stop is a time during which no instruction of a process was run.
type Stop struct {
	Process     int
	From, Until clock.Instant
}
