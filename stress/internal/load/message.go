package load

import "github.com/tierlock/tierlock/stress/internal/evidence"

// Task tells one worker what to do.
type Task struct {
	Config
	Process   int // the number of the worker, from 1
	LockPaths []string
	Dir       string // the directory of the registers
}

// message is one line of a worker's standard output.
//
// A worker reads its task from the first line of its standard input and reports that it is ready. It waits for another line. Then it
// works, and reports its tally. It keeps its session until its input ends, so that the coordinator can count the nodes that the worker
// has left behind. One more line, or the end of the input, ends the work early. The line is for an interrupt, and the end of the input
// shows that the coordinator has died.
type message struct {
	Ready bool            `json:",omitempty"`
	Tally *evidence.Tally `json:",omitempty"`
}
