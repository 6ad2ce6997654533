//go:build !(linux || darwin || freebsd || windows)

package command

import (
	"context"
	"runtime"
)

func watchKeeper(*invocation) error { return errUnsupported() }

func (o *runOptions) keep(context.Context, *invocation) error { return errUnsupported() }

// errUnsupported returns an error before anything has begun. Without process groups and signals, run cannot guarantee that the command ends
// in time.
func errUnsupported() error {
	return usageError("run is not supported on %s, only on Linux, macOS, FreeBSD and Windows", runtime.GOOS)
}
