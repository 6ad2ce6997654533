package command

import (
	"errors"
	"fmt"
)

// These are the exit statuses. They come from sysexits.h where it has a suitable one. The status of the command is passed through.
const (
	exitOK          = 0
	exitNo          = 1   // doctor found something; break deleted nothing; revoke found no holder
	exitUsage       = 64  // EX_USAGE: the command line is wrong
	exitUnavailable = 69  // EX_UNAVAILABLE: no server is available
	exitInternal    = 70  // EX_SOFTWARE: any other error
	exitLost        = 74  // EX_IOERR: the lock was lost while the command ran
	exitNotAcquired = 75  // EX_TEMPFAIL: the lock is taken
	exitCannotRun   = 126 // the command was found, but is not executable
	exitNotFound    = 127
	exitSignal      = 128 // the number of the signal is added
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

// The function usage returns a usage error with the text of err. If err is nil, it returns nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError("%w", err)
}

// The function status returns the exit status for err.
func status(err error) int {
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.status
	}
	return exitInternal
}
