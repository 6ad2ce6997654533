//go:build unix

package interop_test

import (
	"io"
	"os"
	"syscall"
)

// lockFile takes the POSIX lock on a file, and fails if another process has it.
func lockFile(file *os.File) error { return setLock(file, syscall.F_WRLCK) }

func unlockFile(file *os.File) error { return setLock(file, syscall.F_UNLCK) }

func setLock(file *os.File, kind int16) error {
	return syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: kind, Whence: io.SeekStart})
}
