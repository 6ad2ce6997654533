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

// lastPID is the highest possible process number.
var lastPID = 1 << 22

// adopt makes this process the parent of every descendant whose own parent dies.
func adopt() {
	syscall.RawSyscall6(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0, 0, 0, 0) // available since Linux 3.4
	if text, err := os.ReadFile("/proc/sys/kernel/pid_max"); err == nil {
		fmt.Sscan(string(text), &lastPID)
	}
}

// dieWithParent makes the kernel kill the child when the thread that has started the child ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// These constants are arguments of isChild; see waitid(2).
const (
	aProcess = 1
	aGroup   = 2
)

// isChild reports whether a process is a child of this process. With aGroup it reports whether a process group contains a child. The child
// may be dead or alive. As long as it is a child, its number is not used again. isChild opens no file.
func isChild(what, id int) bool {
	const anyChild = syscall.WEXITED | syscall.WNOHANG | syscall.WNOWAIT | syscall.WALL
	_, _, errno := syscall.RawSyscall6(syscall.SYS_WAITID, uintptr(what), uintptr(id), 0, anyChild, 0, 0)
	return errno == 0
}

// The function children finds the children of this process. It tries all possible process numbers.
func children() (pids []int) {
	for pid := 1; pid <= lastPID; pid++ {
		if isChild(aProcess, pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants returns the living processes below this process. If no file can be opened, it returns only the children. Other descendants
// become children when their parents die.
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

// isBelow follows the parents of p upwards. It must not loop without end if process numbers were used again in the meantime.
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

// A process has the state of one process. A process may be dead and still have children, until its last thread has ended.
type process struct {
	parent int
	lives  bool
}

// look parses /proc/PID/stat. Its form is "PID (name) state parent …", and the name may contain any characters.
func look(pid int) process {
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, parent, threads = 0, 1, 17 // their numbers in proc(5) minus 3: two fields are cut off, and this count starts at 0
	if len(fields) <= threads {
		return process{} // the process does not exist
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

// slay kills all processes below this one, again and again, until gone is closed. If some processes do not end, slay calls resisted once
// with these processes.
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
			pause = 0 // a process starts other processes faster than they are found
		}
		select {
		case <-gone:
			return
		case <-time.After(pause):
		}
		before = struck
	}
}

// strike sends KILL to all processes that it finds, and returns them. It may miss processes that are started at the same time. It misses
// none in the process group of the command, because that group is killed as a whole.
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

// awaitRest does nothing, because the processes that a command leaves behind become children of this process.
func awaitRest(int) {}
