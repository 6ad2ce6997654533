//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing, because only Linux can end a child when its parent ends.
func dieWithParent(*syscall.SysProcAttr) {}
