//go:build linux || darwin || freebsd

package command

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"
)

// A terminal is the controlling terminal of this session. In the zero value, the session has none.
type terminal struct{ file *os.File }

func openTerminal() terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return terminal{} // the session has no terminal
	}
	return terminal{file}
}

// foreground returns the foreground process group of the terminal. It returns 0 if there is none.
func (t terminal) foreground() int {
	if t.file == nil {
		return 0
	}
	group, err := foregroundOf(t.file.Fd())
	if err != nil {
		return 0
	}
	return group
}

// give makes group the foreground process group. The caller has to ignore SIGTTOU.
func (t terminal) give(group int) {
	id := int32(group)
	syscall.Syscall(syscall.SYS_IOCTL, t.file.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&id)))
}

// foregroundOf returns the foreground process group of a terminal. If the file is not the controlling terminal, it returns an error.
func foregroundOf(fd uintptr) (int, error) {
	var group int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group))); errno != 0 {
		return 0, errno
	}
	return int(group), nil
}

// isOurTerminal reports whether file is the controlling terminal.
func isOurTerminal(file *os.File) bool {
	_, err := foregroundOf(file.Fd())
	return err == nil
}

// groupEnded reports whether a process group is empty.
func groupEnded(group int) bool { return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

// takeFrom takes the terminal back from the process group of the command.
func (t terminal) takeFrom(command int) {
	if group := t.foreground(); group > 1 && group != syscall.Getpgrp() && (group == command || groupEnded(group)) {
		t.give(syscall.Getpgrp())
	}
}

// stop stops this process together with the command, and gives the terminal back to the shell. The keeper continues and keeps the lock.
func (t terminal) stop(command int) {
	if t.file == nil {
		return
	}
	t.takeFrom(command)
	syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// leave is called at the end. If SIGINT from the terminal has ended the command, leave ends this process by SIGINT as well, so that a loop
// of the shell ends, too.
func (t terminal) leave(command, status int) {
	if status != exitSignal+int(syscall.SIGINT) || !isOurTerminal(os.Stdin) {
		return
	}
	t.takeFrom(command)
	signal.Reset(syscall.SIGINT)
	syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(100 * time.Millisecond) // this process continues if SIGINT is ignored
}
