//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

// Apart gives cmd, not yet started, a process group of its own, because a Ctrl-C in the
// terminal is meant for the parent, which may still need the child. On Linux the child
// dies with the thread that starts it.
func Apart(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	return nil
}

// Pause stops a process with SIGSTOP, which the process cannot refuse, unlike Ctrl-Z.
func Pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume continues a process that was paused.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
