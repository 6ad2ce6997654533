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

// lastPID is an upper bound of process numbers.
var lastPID = 1 << 22

// adopt makes this process the parent of all descendants whose own parents die.
func adopt() {
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0) // there since Linux 3.4
	if text, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		fmt.Sscan(string(text), &lastPID)
	}
}

// dieWithParent makes the kernel kill the child when the thread that started it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// These constants are arguments of isChild; see waitid(2).
const (
	aProcess = 1
	aGroup   = 2
)

// isChild reports whether a process, or any in a process group, is a child of this one, dead or alive. While it is, its number is not
// used again. It opens no file.
func isChild(what, id int) bool {
	const anyChild = syscall.WEXITED | syscall.WNOHANG | syscall.WNOWAIT | syscall.WALL
	_, _, errno := syscall.RawSyscall6(syscall.SYS_WAITID, uintptr(what), uintptr(id), 0, anyChild, 0, 0)
	return errno == 0
}

// children finds the children of this process by trying all possible numbers.
func children() (pids []int) {
	for pid := 1; pid <= lastPID; pid++ {
		if isChild(aProcess, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants returns the living processes below this one. If no file can be opened, it returns only children; descendants become
// children when their parents die.
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

// isBelow walks up from p. isBelow must not loop if numbers were used again meanwhile.
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

// A process may be dead and still have children, until its last thread has ended.
type process struct {
	parent int
	lives  bool
}

// look parses /proc/PID/stat: "PID (name) state parent …", where the name may contain any characters.
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

// signalRest sends sig to the processes that a command has left behind.
func signalRest(_ int, sig syscall.Signal) {
	for _, pid := range descendants() {
		syscall.Kill(pid, sig)
	}
}

// slay kills all processes below this one again and again until gone is closed. slay calls resisted once with processes that do not end.
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

// strike sends KILL to all processes that it finds, and returns them. strike may miss processes that are started meanwhile. strike misses
// none in the command's process group, which is killed as a whole.
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

// awaitRest does nothing, because what a command leaves behind is among the children.
func awaitRest(int) {}
