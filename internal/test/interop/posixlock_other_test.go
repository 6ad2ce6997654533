//go:build !unix

package interop_test

import (
	"errors"
	"os"
)

// On systems without POSIX locks, the oracle fails. Otherwise a test could pass by mistake.
func lockFile(*os.File) error { return errors.ErrUnsupported }

func unlockFile(*os.File) error { return errors.ErrUnsupported }
