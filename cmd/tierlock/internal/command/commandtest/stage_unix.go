//go:build linux || darwin || freebsd

package commandtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Signal sends sig to the process of the command.
func (e *Section) Signal(sig syscall.Signal) {
	e.t.Helper()
	if err := syscall.Kill(e.pid, sig); err != nil {
		e.t.Fatal(err)
	}
}

// catch returns the signals that a command reports.
func catch(stubborn bool) <-chan os.Signal {
	caught := make(chan os.Signal, 16)
	if stubborn {
		signal.Notify(caught, syscall.SIGTERM)
	}
	signal.Notify(caught, syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGQUIT)
	return caught
}

// newRoom returns the name of a file.
func newRoom(t *testing.T, _ net.Addr) string { return filepath.Join(t.TempDir(), "occupied") }

// occupy takes the kernel lock of the file that room names, and keeps it until this process ends. It reports whether no other process had
// the lock.
func occupy(room string) bool {
	fd, err := syscall.Open(room, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		panic(err)
	}
	return !errors.Is(syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// apart() makes a process start in a separate session.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// ChildOf returns the last child of a process. It returns 0 if the process has none.
func ChildOf(parent int) (pid int) {
	out, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
	for _, field := range strings.Fields(string(out)) {
		fmt.Sscan(field, &pid)
	}
	if pid == 0 { // another thread has started the child
		out, _ = exec.Command("pgrep", "-P", fmt.Sprint(parent)).Output()
		fmt.Sscan(string(out), &pid)
	}
	return pid
}
