package command

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const prSetChildSubreaper = 36 // prctl(2)

// lastPID is no smaller than any number of a process.
var lastPID = 1 << 22

// adopt makes whatever loses its parent below this process a child of it, and no stranger.
func adopt() {
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0) // there since Linux 3.4
	if text, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		fmt.Sscan(string(text), &lastPID)
	}
}

// dieWithParent has the kernel kill the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// What isChild can be asked about; see waitid(2).
const (
	aProcess = 1
	aGroup   = 2
)

// isChild reports whether a process, or one in a process group, is a child of this one, dead or alive: the number is
// nobody else's then. It opens no file.
func isChild(what, id int) bool {
	const anyChild = syscall.WEXITED | syscall.WNOHANG | syscall.WNOWAIT | syscall.WALL
	_, _, errno := syscall.RawSyscall6(syscall.SYS_WAITID, uintptr(what), uintptr(id), 0, anyChild, 0, 0)
	return errno == 0
}

// children returns those of this process, by the numbers that there can be.
func children() (pids []int) {
	for pid := 1; pid <= lastPID; pid++ {
		if isChild(aProcess, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants returns the processes below this one that live: only children if no file can be opened, but what their
// deaths leave behind becomes such.
func descendants() []int {
	processes := make(map[int]process)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return children()
	}
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

// isBelow goes up from p. Numbers that were used again meanwhile must not lead it round in a circle.
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

// slay kills everything below this process, until gone is closed: as long as there is anything. It calls
// resisted once about what does not go.
func slay(group int, gone <-chan struct{}, resisted func(pids []int)) {
	begun, pause, before := time.Now(), time.Duration(0), []int(nil)
	for {
		struck := strike(group)
		if resisted != nil && len(struck) > 0 && time.Since(begun) > time.Second {
			resisted(struck)
			resisted = nil
		}
		pause = min(max(2*pause, time.Millisecond), 100*time.Millisecond)
		if slices.ContainsFunc(struck, func(pid int) bool { return !slices.Contains(before, pid) }) {
			pause = 0 // a process starts others faster than they are found
		}
		select {
		case <-gone:
			return
		case <-time.After(pause):
		}
		before = struck
	}
}

// strike sends KILL to all that it finds, and returns it. Of what starts others meanwhile it may miss some, but
// in the group of the command: that is killed at one stroke.
func strike(group int) (struck []int) {
	if group > 0 && isChild(aGroup, group) {
		syscall.Kill(-group, syscall.SIGKILL)
	}
	below := descendants()
	for _, pid := range below {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return below
}

// awaitRest has nothing to wait for: what a command leaves behind is among the children.
func awaitRest(int) {}
