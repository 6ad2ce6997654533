//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/signal"
	"syscall"
)

// ending are the signals that end a run that waits for the lock.
var ending = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// catch returns the signals that the command is to get. Those that are ignored, as under
// nohup, stay so, also in the command.
func catch() <-chan os.Signal {
	caught := make(chan os.Signal, 64)
	for _, sig := range append(ending, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT) {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
	// The reader of stderr may be gone: no reason to die. To ignore that would have the command ignore it, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return caught
}

// catchInBackground is catch for the keeper: in the background of the terminal it may have to print something.
func catchInBackground() <-chan os.Signal {
	signal.Ignore(syscall.SIGTTOU)
	return catch()
}

// suspends reports whether sig stops a run that waits.
func suspends(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// endedBy returns the signal that ended a process.
func endedBy(status syscall.WaitStatus) syscall.Signal { return status.Signal() }

// unignoreTTOU makes a signal that this process ignores one with its default action for the next
// process that is executed. Reset does not.
func unignoreTTOU() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU) }
