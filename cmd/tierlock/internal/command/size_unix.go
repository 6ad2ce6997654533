//go:build linux || darwin

package command

import (
	"os"
	"syscall"
	"unsafe"
)

// terminalSize returns the size of the terminal. It asks the terminal each time, because the size may have changed.
func terminalSize(f *os.File) (width, height int) {
	var size struct{ rows, columns, x, y uint16 }
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	if errno != 0 || size.rows == 0 || size.columns == 0 {
		return 80, 24
	}
	return int(size.columns), int(size.rows)
}
