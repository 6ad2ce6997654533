//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

// A child is the command, together with all processes that it starts.
type child struct {
	pid    int // also the number of its process group
	ended  bool
	events chan syscall.WaitStatus
	gone   chan struct{} // closed when the command and all processes that it has started have ended

	terminal terminal
	shell    int  // the process group that gets the terminal back
	had      bool // the command had the terminal when it was stopped
}

// keeperTerminal returns the terminal of the keeper, which may start many commands.
var keeperTerminal = sync.OnceValue(openTerminal)

// startChild starts the command in a separate process group. If the command is interactive, this group becomes the foreground group of the
// terminal, unless another group may want the terminal.
func startChild(command, env []string, interactive bool) (*child, error) {
	c := &child{events: make(chan syscall.WaitStatus), gone: make(chan struct{}), terminal: keeperTerminal()}
	c.shell, _ = syscall.Getpgid(os.Getppid())
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// In a pipeline, other processes may want the terminal as well. In that case the command gets it only when it asks for it.
	foreground := interactive && isOurTerminal(os.Stdin) && isOurTerminal(os.Stdout) && c.terminal.foreground() == c.shell
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Ctty: 0}
	dieWithParent(cmd.SysProcAttr)
	adopt()
	unignoreTTOU() // otherwise the command would inherit that SIGTTOU is ignored
	defer signal.Ignore(syscall.SIGTTOU)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel treats the end of this thread as the end of the parent
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
			cmd.Process.Release() // closes its descriptor; reap waits for the process by its number
		}
		started <- err
		if err == nil {
			reap(c.pid, func(status syscall.WaitStatus) { c.events <- status })
			awaitRest(c.pid)
			close(c.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// reap calls tell for each change of the state of the child with the number pid. It returns when this process has no more children. The
// children include processes whose parents have died; see adopt.
func reap(pid int, tell func(syscall.WaitStatus)) {
	for {
		var status syscall.WaitStatus
		changed, err := syscall.Wait4(-1, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // there are no children
			return
		case changed == pid:
			tell(status)
		}
	}
}

// The method signal sends sig to the process group of the command. After the command has ended, another process group may have the same
// number. Therefore sig then goes only to the remaining processes of the command.
func (c *child) signal(sig syscall.Signal) {
	if c.ended {
		signalRest(c.pid, sig)
		return
	}
	syscall.Kill(-c.pid, sig)
}

// forward passes a signal on to the command. If the command continues after a stop, it gets the terminal back.
func (c *child) forward(sig syscall.Signal) {
	if sig == syscall.SIGCONT && c.had && c.terminal.foreground() == c.shell {
		c.terminal.give(c.pid)
	}
	c.signal(sig)
}

// goesOn is called when the command was stopped. If it was stopped only because it did not have the terminal, and it may have the terminal,
// goesOn continues the command and returns true.
func (c *child) goesOn(stop syscall.Signal) bool {
	if (stop == syscall.SIGTTIN || stop == syscall.SIGTTOU) && c.terminal.foreground() == c.shell {
		c.terminal.give(c.pid)
		c.signal(syscall.SIGCONT)
		return true
	}
	c.had = c.terminal.foreground() == c.pid
	return false
}

// The method end asks the command to end. This works even if the command is stopped.
func (c *child) end() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// kill kills all processes of the command, and returns when none is left. If that takes long, kill calls resisted once.
func (c *child) kill(resisted func(pids []int)) { slay(c.pid, c.gone, resisted) }

// The method close does nothing, because a process group needs no handle.
func (c *child) close() {}

// left returns the remaining processes, as far as the system shows them.
func (c *child) left() []int { return descendants() }
