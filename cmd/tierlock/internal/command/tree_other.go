//go:build darwin || freebsd

package command

import (
	"syscall"
	"time"
)

// Only Linux shows the descendants of a process after the death of those in between, and kills a child when its parent dies. On other
// systems the process group is used instead.

func adopt() {}

func dieWithParent(*syscall.SysProcAttr) {}

// signalRest sends sig to the process group of the command, which may have left processes behind.
func signalRest(group int, sig syscall.Signal) { syscall.Kill(-group, sig) }

// slay kills the process group, and returns when no process of it is left. If that takes long, it calls resisted once.
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

// descendants is not known.
func descendants() []int { return nil }

// awaitRest waits until no process of the group is left.
func awaitRest(group int) {
	for !groupEnded(group) {
		time.Sleep(20 * time.Millisecond)
	}
}
