//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/signal"
	"syscall"
)

// ending are the signals that end a run that waits for the lock.
var ending = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// catch returns the signals that are forwarded to the command. Signals that are ignored, as under nohup, stay ignored, also in the
// command.
func catch() <-chan os.Signal {
	caught := make(chan os.Signal, 64)
	for _, sig := range append(ending, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT) {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
	// A missing reader of stderr is no reason to die. SIGPIPE is caught and not ignored, because the command would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return caught
}

// catchInBackground is catch for the keeper, which may have to print from the background of the terminal.
func catchInBackground() <-chan os.Signal {
	signal.Ignore(syscall.SIGTTOU)
	return catch()
}

// suspends reports whether sig stops a run that waits.
func suspends(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// endedBy returns the signal that ended a process.
func endedBy(status syscall.WaitStatus) syscall.Signal { return status.Signal() }

// unignoreTTOU gives SIGTTOU, which this process ignores, its default action in the next process that is executed. signal.Reset does not
// do that.
func unignoreTTOU() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU) }
