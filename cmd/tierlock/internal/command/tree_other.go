//go:build darwin || freebsd

package command

import (
	"syscall"
	"time"
)

// Only Linux lets a process find its descendants after the processes in between have died, and kills a child when its parent dies. Other
// systems use the process group instead.

func adopt() {}

func dieWithParent(*syscall.SysProcAttr) {}

// signalRest sends sig to the process group of the command, in which the command may have left processes behind.
func signalRest(group int, sig syscall.Signal) { syscall.Kill(-group, sig) }

// slay kills the process group, and returns when the group is empty. If that takes long, slay calls resisted once.
func slay(group int, _ <-chan struct{}, resisted func(pids []int)) {
	begun := time.Now()
	for group > 0 && !groupEnded(group) {
		syscall.Kill(-group, syscall.SIGKILL)
		if resisted != nil && time.Since(begun) > time.Second {
			resisted([]int{group})
			resisted = nil
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// descendants returns nil, because the descendants are not known.
func descendants() []int { return nil }

// awaitRest waits until the process group is empty.
func awaitRest(group int) {
	for !groupEnded(group) {
		time.Sleep(20 * time.Millisecond)
	}
}
