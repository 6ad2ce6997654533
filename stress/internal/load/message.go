package load

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tierlock/tierlock/stress/internal/evidence"
)

// Task tells one worker what to do.
type Task struct {
	Config
	Process   int // the number of the worker, from 1
	Agent     int // the number of the agent through which the worker locks, from 1; 0 if the worker connects to the store itself
	LockPaths []string
	Dir       string // the directory of the registers

	Long      time.Duration // what a long section lasts, for a hold that has to be renewed
	LongEvery int           // one section in this many is long; 0: none
}

// Linger makes the section of a worker go on until the worker notices a loss, or until end is called. Call Linger while the worker works in
// its section. It has no effect on a worker that checks nothing.
func Linger(dir string, process int) (end func(), err error) {
	name := lingerName(dir, process)
	return func() { _ = os.Remove(name) }, os.WriteFile(name, nil, 0o600)
}

func lingerName(dir string, process int) string {
	return filepath.Join(dir, fmt.Sprint("linger-", process))
}

// message is one line of a worker's standard output.
//
// A worker reads its task from the first line of its standard input, and reports that it is ready. The second line makes it start its work;
// at the end it reports its tally. A further line stops the work early, after an interrupt. The end of the input also stops the work: it
// shows that the coordinator has died. The worker keeps its session until its input ends, so that the coordinator can count the nodes that
// the worker has left behind.
type message struct {
	Ready bool            `json:",omitempty"`
	Tally *evidence.Tally `json:",omitempty"`
}
