//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

// Apart gives cmd a process group of its own. The command must not be started yet. The reason is that a Ctrl-C in the terminal is meant for
// the parent, which may still need the child. On Linux, the child dies with the thread that starts it.
func Apart(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	return nil
}

// Pause stops a process with SIGSTOP. Unlike the signal of Ctrl-Z, the process cannot refuse this signal.
func Pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a paused process continue.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
