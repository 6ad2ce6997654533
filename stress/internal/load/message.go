package load

import "github.com/tierlock/tierlock/stress/internal/evidence"

// Task is what one worker is to do.
type Task struct {
	Config
	Process   int // from 1
	LockPaths []string
	Dir       string // of the registers
}

// message is one line of a worker's standard output.
//
// A worker gets its task on the first line of its standard input, says that it is ready, waits for another one, works,
// reports, and keeps its session until its input ends, so that the nodes it leaves can
// be counted. Another line, or the end of the input, stops it early: that is how the
// coordinator interrupts it and how it notices that the coordinator is gone.
type message struct {
	Ready bool            `json:",omitempty"`
	Tally *evidence.Tally `json:",omitempty"`
}
