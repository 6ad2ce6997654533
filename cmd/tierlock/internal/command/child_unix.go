//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// A child is the command, together with all processes that it starts.
type child struct {
	pid    int // also its process group
	ended  bool
	events chan syscall.WaitStatus
	gone   chan struct{} // closed when nothing is left of the command nor of what it started

	terminal terminal
	shell    int  // the process group that the terminal is given back to
	had      bool // it had the terminal when it was stopped
}

// startChild starts the command in a process group of its own. startChild makes this group the terminal's foreground group, unless
// another group may want the terminal.
func startChild(command, env []string) (*child, error) {
	c := &child{events: make(chan syscall.WaitStatus), gone: make(chan struct{}), terminal: openTerminal()}
	c.shell, _ = syscall.Getpgid(os.Getppid())
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// In a pipeline, other processes may want the terminal as well. The command then gets it when it asks.
	foreground := isOurTerminal(os.Stdin) && isOurTerminal(os.Stdout) && c.terminal.foreground() == c.shell
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Ctty: 0}
	dieWithParent(cmd.SysProcAttr)
	adopt()
	unignoreTTOU() // which the command would inherit
	defer signal.Ignore(syscall.SIGTTOU)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // whose end the kernel takes for the parent's
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			reap(cmd.Process.Pid, func(status syscall.WaitStatus) { c.events <- status })
			awaitRest(cmd.Process.Pid)
			close(c.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	return c, nil
}

// reap calls tell for each change of the given child, and returns when this process has no children any more. Its children include
// processes whose parents have died; see adopt.
func reap(pid int, tell func(syscall.WaitStatus)) {
	for {
		var status syscall.WaitStatus
		changed, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // no children
			return
		case changed == pid:
			tell(status)
		}
	}
}

// signal sends sig to the process group. If the command has ended, its group's number may be in use again, so only remaining processes
// get sig.
func (c *child) signal(sig syscall.Signal) {
	if c.ended {
		signalRest(c.pid, sig)
		return
	}
	syscall.Kill(-c.pid, sig)
}

// forward passes a signal on. A command that continues after a stop gets the terminal back.
func (c *child) forward(sig syscall.Signal) {
	if sig == syscall.SIGCONT && c.had && c.terminal.foreground() == c.shell {
		c.terminal.give(c.pid)
	}
	c.signal(sig)
}

// goesOn continues the command if it was stopped because it did not have the terminal and may have it, and reports that.
func (c *child) goesOn(stop syscall.Signal) bool {
	if (stop == syscall.SIGTTIN || stop == syscall.SIGTTOU) && c.terminal.foreground() == c.shell {
		c.terminal.give(c.pid)
		c.signal(syscall.SIGCONT)
		return true
	}
	c.had = c.terminal.foreground() == c.pid
	return false
}

// end asks the command to end, even if it is stopped.
func (c *child) end() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// kill returns when no process is left. If that takes long, it calls resisted once.
func (c *child) kill(resisted func(pids []int)) { slay(c.pid, c.gone, resisted) }

// left returns the remaining processes, as far as the system shows them.
func (c *child) left() []int { return descendants() }
