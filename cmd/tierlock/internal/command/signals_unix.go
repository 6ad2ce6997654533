//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/signal"
	"syscall"
)

// The variable ending has the signals that end a run while it waits for the lock.
var ending = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// catch returns the signals that are forwarded to the command. If a signal is ignored, as under nohup, it stays ignored in this process and
// in the command.
func catch() <-chan os.Signal {
	caught := make(chan os.Signal, 64)
	for _, sig := range append(ending, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT) {
		if !signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
	// If nothing reads stderr any more, this process must not die. SIGPIPE is caught, and not ignored, because the command would inherit
	// that it is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return caught
}

// catchInBackground is like catch, for the keeper. The keeper may have to print while it is a background job of the terminal.
func catchInBackground() <-chan os.Signal {
	signal.Ignore(syscall.SIGTTOU)
	return catch()
}

// suspends reports whether sig stops a run that waits.
func suspends(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// endedBy returns the signal that ended a process.
func endedBy(status syscall.WaitStatus) syscall.Signal { return status.Signal() }

// unignoreTTOU restores the default action of SIGTTOU for the next process that is executed, although this process ignores SIGTTOU.
// signal.Reset does not do that.
func unignoreTTOU() { signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU) }
