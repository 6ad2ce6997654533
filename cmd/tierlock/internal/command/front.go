//go:build linux || darwin || freebsd || windows

package command

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/clock"
)

// A front is the process of tierlock run that the shell has started. It forwards signals to the keeper, which does the work. If the keeper
// is killed, or does not confirm in time that the lock is held, the front kills everything.
type front struct {
	in      *invocation
	keeper  *exec.Cmd
	line    line
	ended   chan struct{}      // closed when the keeper has ended
	status  syscall.WaitStatus // the status of the keeper; valid when ended is closed
	gone    chan struct{}      // closed when the processes that the keeper has left behind have ended as well
	signals <-chan os.Signal

	clock    *clock.Clock
	asked    time.Duration // when the last question was sent, on the clock of the front
	question int
	ask      *time.Timer
	until    time.Duration // the time at which the command has to be dead, unless there is a new answer
	deadline *time.Timer
	again    bool // the deadline was put off once since the last answer that confirmed the lock

	held     bool
	done     bool // all processes of the command have ended
	group    int  // the process group of the command; 0 before the command has begun
	terminal terminal
}

// watchKeeper starts the keeper. It returns when the keeper and the command have ended.
func watchKeeper(in *invocation) error {
	f := &front{in: in, signals: catch(), terminal: openTerminal(), ended: make(chan struct{}), gone: make(chan struct{}), ask: stopped(),
		deadline: stopped(), clock: clock.New()}
	if err := f.start(); err != nil {
		return err
	}
	defer func() { f.terminal.takeFrom(f.group) }()
	for {
		select {
		case sig := <-f.signals:
			f.pass(sig)
		case text, open := <-f.line.heard:
			if !open { // the keeper has ended, or will end soon
				<-f.ended
				return f.end()
			}
			f.hear(text)
		case <-f.ask.C:
			f.pose()
		case <-f.deadline.C:
			if f.late() {
				continue
			}
			f.slay()
			return fail(exitLost, "%s: tierlock keep, which holds the lock, does not respond; the command was killed",
				in.args[0])
		}
	}
}

func stopped() *time.Timer {
	t := time.NewTimer(0)
	t.Stop()
	return t
}

// start starts the keeper.
func (f *front) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var theirs lineEnd
	if f.line, theirs, err = openLine(); err != nil {
		return err
	}
	defer theirs.close()
	f.keeper = exec.Command(self, slices.Concat(f.in.before, []string{"keep"}, theirs.words(), f.in.after)...)
	f.keeper.Stdin, f.keeper.Stdout, f.keeper.Stderr = os.Stdin, os.Stdout, os.Stderr
	return f.launch(theirs)
}

// hear handles a message from the keeper; see [line].
func (f *front) hear(text string) {
	var word string
	var n, of int
	fmt.Sscan(text, &word, &n, &of)
	switch word {
	case "held":
		f.held = true
		f.pose()
	case "for":
		if of == f.question {
			f.count(time.Duration(n))
		}
	case "running":
		f.group = n
	case "stopped":
		f.terminal.stop(f.group)
	case "rest":
		f.rest()
	case "done":
		f.done = true
		f.ask.Stop()
		f.deadline.Stop()
		f.terminal.takeFrom(f.group)
	}
}

// rest is called after the end of a slot. Until the keeper starts the command of the next slot, it is not asked anything.
func (f *front) rest() {
	f.held, f.again = false, false
	f.ask.Stop()
	f.deadline.Stop()
	f.terminal.takeFrom(f.group)
	f.group = 0
	f.line.say("rest")
}

// pose asks the keeper how long the command may live.
func (f *front) pose() {
	f.asked = f.clock.Now()
	f.question++
	f.line.say("ask %d", f.question)
}

// count handles the answer to the last question. The time in the answer counts from the sending of the question, because the keeper may
// have been stopped after it had read its clock.
func (f *front) count(life time.Duration) {
	f.until = f.asked + life
	left := f.until - f.clock.Now()
	f.again = f.again && left <= 0
	f.deadline.Reset(f.clock.Left(f.until))
	f.ask.Reset(min(left/4, time.Second))
}

// late handles the timer of the deadline, and reports whether there is more time. There is more time if the deadline has not come yet. If
// the deadline passed while this process was stopped or the machine slept, the keeper may have renewed the lease. late then asks the keeper
// once more.
func (f *front) late() bool {
	if left := f.clock.Left(f.until); left > 0 {
		f.deadline.Reset(left)
		return true
	}
	if f.again || f.clock.Now()-f.until < 100*time.Millisecond {
		return false
	}
	f.again = true
	f.pose()
	f.deadline.Reset(time.Second) // time for the question and the answer on a busy machine
	return true
}

// end returns the result of the keeper.
func (f *front) end() error {
	if f.done && !f.status.Signaled() {
		f.terminal.leave(f.group, f.status.ExitStatus())
		return &failure{status: f.status.ExitStatus()}
	}
	if f.held {
		f.slay()
		return fail(exitLost, "%s: tierlock keep, which held the lock, ended with status %d; the command was killed", f.in.args[0],
			exitOf(f.status))
	}
	if sig := endedBy(f.status); slices.Contains(ending, sig) { // the signal came before the keeper was able to catch it
		return interrupted(f.in.args[0], sig)
	}
	return fail(exitInternal, "tierlock keep ended with status %d while no command was running", exitOf(f.status))
}

// resisted reports the processes that KILL has not ended within a second.
func (in *invocation) resisted(pids []int) {
	in.say("these processes have survived KILL; they may belong to another user: %v", pids)
}
