package load

import "github.com/tierlock/tierlock/stress/internal/evidence"

// Task tells one worker what to do.
type Task struct {
	Config
	Process   int // from 1
	LockPaths []string
	Dir       string // of the registers
}

// message is one line of a worker's standard output.
//
// A worker reads its task from the first line of its standard input and reports that it is ready. It waits for another line, works, and
// reports. It keeps its session until its input ends, so that the nodes that it leaves can be counted. Another line, or the end of the
// input, stops it early. With this the coordinator interrupts it, and it notices the coordinator's death.
type message struct {
	Ready bool            `json:",omitempty"`
	Tally *evidence.Tally `json:",omitempty"`
}
