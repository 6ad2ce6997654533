package command

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
)

const prSetChildSubreaper = 36 // prctl(2)

// adopt makes whatever loses its parent below this process a child of it, and no stranger.
func adopt() {
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0) // there since Linux 3.4
}

// dieWithParent has the kernel kill the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// descendants returns the processes below this one that live.
func descendants() []int {
	parents := make(map[int]int)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if parent, lives := parentOf(pid); lives {
				parents[pid] = parent
			}
		}
	}
	var below []int
	for pid := range parents {
		for up := parents[pid]; up != 0; up = parents[up] {
			if up == os.Getpid() {
				below = append(below, pid)
				break
			}
		}
	}
	return below
}

// parentOf reads /proc/PID/stat: "PID (name) state parent …", where the name may hold anything.
func parentOf(pid int) (parent int, lives bool) {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 || bytes.ContainsAny(fields[0], "ZX") {
		return 0, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return parent, err == nil
}

// signalRest sends sig to what a command, which was the leader of group, has left behind.
func signalRest(_ int, sig syscall.Signal) {
	for _, pid := range descendants() {
		syscall.Kill(pid, sig)
	}
}

// slay kills everything below this process, and returns when nothing is left. It calls
// resisted once about what does not go.
func slay(_ int, resisted func(pids []int)) {
	begun, pause := time.Now(), time.Millisecond
	for {
		below := descendants()
		if len(below) == 0 {
			return
		}
		for _, pid := range below {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if resisted != nil && time.Since(begun) > time.Second {
			resisted(below)
			resisted = nil
		}
		time.Sleep(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// awaitRest has nothing to wait for: what a command leaves behind is among the children.
func awaitRest(int) {}
