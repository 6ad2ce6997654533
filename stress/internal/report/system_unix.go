//go:build unix

package report

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// system returns the name and the release of the operating system.
func system() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}
