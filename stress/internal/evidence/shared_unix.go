//go:build unix

package evidence

import (
	"errors"
	"os"
	"syscall"
)

// The function share maps the first bytes of a file into the memory of this process.
func share(file *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// tryLock takes the kernel's lock on an open file. If another open file has the lock, it returns true for taken.
func tryLock(file *os.File, shared bool) (taken bool, err error) {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err = syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, os.NewSyscallError("flock", err)
}

// Lock waits until it has the kernel's lock on an open file. Closing the file, or the end of the process, releases the lock.
func Lock(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

func unlock(file *os.File) error {
	return os.NewSyscallError("flock", syscall.Flock(int(file.Fd()), syscall.LOCK_UN))
}
