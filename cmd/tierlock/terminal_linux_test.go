package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/command/commandtest"
	"github.com/tierlock/tierlock/internal/test/child/childtest"
	"github.com/tierlock/tierlock/internal/test/logtest"
	"github.com/tierlock/tierlock/internal/test/need"
)

// A screen is a terminal in which a shell runs.
type screen struct {
	t      *testing.T
	master *os.File
	shown  *logtest.Log
}

func newScreen(t *testing.T, servers string, shell ...string) *screen {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	var number, unlock int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlock} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	slave := need.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	cmd := exec.Command(shell[0], shell[1:]...)
	cmd.Env = append(os.Environ(), "TIERLOCK_STORE=zk://"+servers, "TIERLOCK="+commandtest.Program, "PS1=$ ", "TERM=dumb")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	need.OK(t, cmd.Start())
	slave.Close()
	s := &screen{t, master, new(logtest.Log)}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			s.shown.Write(buffer[:n])
			if err != nil { // the last process has ended
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		master.Close()
		<-shown
		if t.Failed() {
			t.Logf("the screen shows:\n%s", s.shown)
		}
	})
	return s
}

func (s *screen) types(text string) {
	s.t.Helper()
	need.Get(s.master.WriteString(text))(s.t)
}

func (s *screen) shows(want string) {
	s.t.Helper()
	childtest.Eventually(s.t, fmt.Sprintf("%q on the screen", want), func() bool { return strings.Contains(s.shown.String(), want) })
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// While the command runs, it has the terminal, including Ctrl-C. After that, the shell gets the terminal back. A shell that has started to
// read may miss its signal until there is input. Therefore the second command does not read.
func TestTerminalIsTheCommandsAndGoesBack(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := newScreen(t, server.Addr(), "sh", "-c", `
		"$TIERLOCK" run /terminal -- sh -c 'echo ready 1; read line; echo command got $line'
		read line; echo shell got $line
		"$TIERLOCK" run /terminal -- sh -c 'trap "echo command interrupted; exit 3" INT; echo ready 2; while :; do sleep 0.1; done'
		echo status $?
		"$TIERLOCK" run /terminal -- sh -c 'echo ready 3; exec sleep 100'
		echo status $?
		read line; echo shell got $line`)
	s.shows("ready 1")
	s.types("one\n")
	s.shows("command got one")
	s.types("two\n")
	s.shows("shell got two")
	s.shows("ready 2")
	s.types(ctrlC)
	s.shows("command interrupted")
	s.shows("status 3")
	s.shows("ready 3")
	s.types(ctrlC)
	s.shows("status 130")
	s.types("three\n")
	s.shows("shell got three")
}

// In a pipeline, the other processes keep the terminal until the command reads from it.
func TestCommandInAPipelineGetsTheTerminalWhenItReads(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := newScreen(t, server.Addr(), "sh", "-c", `
		"$TIERLOCK" run /pipeline -- sh -c 'echo ready; read line < /dev/tty; echo command got $line' | sed s/got/GOT/
		read line; echo shell got $line`)
	s.shows("ready")
	s.types("one\n")
	s.shows("command GOT one")
	s.types("two\n")
	s.shows("shell got two")
}

// The command of a slot does not get the terminal. Therefore Ctrl-C also reaches tierlock, and ends the schedule.
func TestTerminalEndsTheSlots(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := newScreen(t, server.Addr(), "sh", "-c", `
		trap : INT
		"$TIERLOCK" run -every 1s /terminal/slots -- sh -c 'trap "echo command interrupted; exit 3" INT; echo ready; while :; do sleep 0.1; done'
		echo status $?
		read line; echo shell got $line`)
	s.shows("ready")
	s.types(ctrlC)
	s.shows("command interrupted")
	s.shows("status 0")
	s.types("one\n")
	s.shows("shell got one")
}

// Ctrl-Z stops the command and returns to the shell's prompt, and fg continues it. The locks are kept. In this test, two runs are nested.
func TestSuspendedAndContinued(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	server := startServer(t)
	s := newScreen(t, server.Addr(), "bash", "--norc", "--noprofile", "-i")
	s.types("\"$TIERLOCK\" run -session 4s /outer -- \"$TIERLOCK\" run -session 4s /inner -- " +
		"sh -c 'echo re\"\"ady; read line; echo command g\"\"ot $line'\n")
	s.shows("ready")
	s.types(ctrlZ)
	s.shows("Stopped")
	s.types("sleep 5; for lock in /outer /inner; do \"$TIERLOCK\" run -n -E 9 $lock -- true; echo $lock status $?; done\n")
	s.shows("/outer status 9")
	s.shows("/inner status 9")
	s.types("fg\n")
	s.types("one\n")
	s.shows("command got one")
	s.types("echo prompt is b\"\"ack\n")
	s.shows("prompt is back")
}
