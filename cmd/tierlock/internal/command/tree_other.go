//go:build darwin || freebsd

package command

import (
	"syscall"
	"time"
)

// Only Linux tells who descends from whom after the death of those between, and binds a child's
// life to its parent's. Elsewhere the process group stands for the command.

func adopt() {}

func dieWithParent(*syscall.SysProcAttr) {}

// signalRest sends sig to what a command, which was the leader of group, has left behind.
func signalRest(group int, sig syscall.Signal) { syscall.Kill(-group, sig) }

// slay kills the process group, and returns when nothing is left of it. It calls resisted once
// if that takes long.
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

// awaitRest waits for the end of what is left of group.
func awaitRest(group int) {
	for !groupEnded(group) {
		time.Sleep(20 * time.Millisecond)
	}
}
