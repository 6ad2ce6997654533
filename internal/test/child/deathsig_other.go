//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing: only Linux can bind a child's life to its parent's.
func dieWithParent(*syscall.SysProcAttr) {}
