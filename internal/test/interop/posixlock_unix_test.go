//go:build unix

package interop_test

import (
	"io"
	"os"
	"syscall"
)

// lockFile waits until no other process has the POSIX lock on a file, and takes it.
func lockFile(file *os.File) error { return setLock(file, syscall.F_WRLCK) }

func unlockFile(file *os.File) error { return setLock(file, syscall.F_UNLCK) }

func setLock(file *os.File, kind int16) error {
	for {
		err := syscall.FcntlFlock(file.Fd(), syscall.F_SETLKW, &syscall.Flock_t{Type: kind, Whence: io.SeekStart})
		if err != syscall.EINTR {
			return err
		}
	}
}
