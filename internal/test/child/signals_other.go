//go:build !unix

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

var errNotUnix = fmt.Errorf("%w: child processes that can be paused take a Unix system", errors.ErrUnsupported)

// Apart fails, because child processes are supported only on Unix.
func Apart(*exec.Cmd) error { return errNotUnix }

// Pause fails for the same reason as Apart.
func Pause(*os.Process) error { return errNotUnix }

// Resume fails for the same reason as Apart.
func Resume(*os.Process) error { return errNotUnix }
