package command

import (
	"bytes"
	"os"
	"strconv"
	"strings"
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
	processes := make(map[int]process)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			processes[pid] = look(pid)
		}
	}
	var below []int
	for pid, p := range processes {
		if p.lives && isBelow(processes, p) {
			below = append(below, pid)
		}
	}
	return below
}

// isBelow goes up from p. Numbers that were used again meanwhile must not lead it round for ever.
func isBelow(processes map[int]process, p process) bool {
	for range processes {
		switch p.parent {
		case os.Getpid():
			return true
		case 0:
			return false
		}
		p = processes[p.parent]
	}
	return false
}

// A process may be dead and still the parent of others: until the last of its threads has gone.
type process struct {
	parent int
	lives  bool
}

// look reads /proc/PID/stat: "PID (name) state parent …", where the name may hold anything.
func look(pid int) process {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, parent, threads = 0, 1, 17 // those of proc(5), less the first two, from 0
	if len(fields) <= threads {
		return process{} // gone
	}
	up, _ := strconv.Atoi(fields[parent])
	return process{up, fields[state] != "Z" && fields[state] != "X" || fields[threads] != "1" && fields[threads] != "0"}
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
	for empty := 0; empty < 2; { // one look may miss what changed its parent meanwhile
		below := descendants()
		empty++
		for _, pid := range below {
			syscall.Kill(pid, syscall.SIGKILL)
			empty = 0
		}
		if resisted != nil && len(below) > 0 && time.Since(begun) > time.Second {
			resisted(below)
			resisted = nil
		}
		time.Sleep(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// awaitRest has nothing to wait for: what a command leaves behind is among the children.
func awaitRest(int) {}
