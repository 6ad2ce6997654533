//go:build !unix

package evidence

import (
	"errors"
	"fmt"
	"os"
)

var errNotUnix = fmt.Errorf("%w: the judge needs the shared memory and the file locks of a Unix system", errors.ErrUnsupported)

func share(*os.File, int) ([]byte, error) { return nil, errNotUnix }

func tryLock(*os.File, bool) (taken bool, err error) { return false, errNotUnix }

func unlock(*os.File) error { return errNotUnix }

// Lock fails, because this system has no kernel locks on files that work like those of Unix.
func Lock(*os.File) error { return errNotUnix }
