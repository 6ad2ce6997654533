package command

import (
	"errors"
	"fmt"
)

// Exit statuses are those of sysexits.h where it has one. The status of the command is passed through.
const (
	exitOK          = 0
	exitNo          = 1   // doctor found something; break deleted nothing; revoke found no holder
	exitUsage       = 64  // EX_USAGE: the command line
	exitUnavailable = 69  // EX_UNAVAILABLE: no server
	exitInternal    = 70  // EX_SOFTWARE: anything else
	exitLost        = 74  // EX_IOERR: the lock was lost while the command ran
	exitNotAcquired = 75  // EX_TEMPFAIL: the lock is taken
	exitCannotRun   = 126 // found, but not executable
	exitNotFound    = 127
	exitSignal      = 128 // and the number of the signal
)

// A failure is an error with an exit status. If it has no text, nothing is printed.
type failure struct {
	status int
	err    error
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func fail(status int, format string, args ...any) error {
	return &failure{status, fmt.Errorf(format, args...)}
}

// usageError returns a failure that says what is wrong with the command line.
func usageError(format string, args ...any) error { return fail(exitUsage, format, args...) }

// usage is a usage error with the text of err; nil if that is.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError("%w", err)
}

// status returns the exit status for err.
func status(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.status
	}
	return exitInternal
}
