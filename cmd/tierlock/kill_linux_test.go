package main_test

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// The program chain starts a chain of processes: each one forks the next and exits, as long as the directory in its argument exists.
const chain = `while (-d $ARGV[0]) { exit if fork }`

// The run kills such a chain before it ends, both inside and outside of the command's process group. To send KILL, it must not open a file,
// because the file table may be full.
func TestForksDoNotOutrunKILL(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	conn := operate(t, server)
	for name, command := range map[string][]string{
		"in the group":                        {"perl", "-e", chain},
		"in the group, and no file is opened": {"perl", "-e", chain},
		"in another group":                    {"setsid", "perl", "-e", chain},
		"in another, and no file is opened":   {"setsid", "perl", "-e", chain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(command[0]); err != nil {
				t.Skip(err)
			}
			alive, theirs, err := os.Pipe()
			need.OK(t, err)
			defer alive.Close()
			path := "/chain/" + name
			p := startWith(t, server.Addr(), func(cmd *exec.Cmd) { cmd.ExtraFiles = []*os.File{theirs} },
				commandtest.Under("", path, append(command, t.TempDir())...)...)
			theirs.Close()
			p.Says("held until these processes end")
			if strings.Contains(name, "no file") {
				fillFiles(t, p.Keeper())
			}
			deleteQueue(t, conn, path)
			begun := time.Now()
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, alive)
				ended <- err
			}()
			select {
			case <-ended:
			case <-time.After(commandtest.Patience):
				t.Fatal("it lives on")
			}
			t.Logf("dead %v after the node was deleted", time.Since(begun))
			p.Exits(74)
		})
	}
}

// fillFiles prevents a process from opening any more files.
func fillFiles(t *testing.T, pid int) {
	t.Helper()
	none := syscall.Rlimit{Cur: 0, Max: 1 << 10}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	if errno != 0 {
		t.Skip(errno)
	}
	runtime.KeepAlive(&none)
}
