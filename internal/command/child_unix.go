//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// A child is the command, with all that it starts.
type child struct {
	group  int // also the pid of the command
	ended  bool
	events chan syscall.WaitStatus
	gone   chan struct{} // closed when nothing is left of the command nor of what it started
}

// startChild starts the command in a process group of its own, to which it gives the terminal
// if foreground.
func startChild(command, env []string, foreground bool) (*child, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: foreground, Ctty: 0}
	dieWithParent(cmd.SysProcAttr)
	adopt()
	c := &child{events: make(chan syscall.WaitStatus), gone: make(chan struct{})}
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
	c.group = cmd.Process.Pid
	return c, nil
}

// reap tells what happens to one child, and returns when this process has none any more. Those whose parents
// have died are among them; see adopt.
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

// signal sends sig to the process group, or to what is left when the command has ended: the
// number of the group may then be another's.
func (c *child) signal(sig syscall.Signal) {
	if c.ended {
		signalRest(c.group, sig)
		return
	}
	syscall.Kill(-c.group, sig)
}

// end asks the command to end, even if it is stopped.
func (c *child) end() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// exit returns the status of a command that has ended, as a shell would.
func exitOf(status syscall.WaitStatus) int {
	if status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return status.ExitStatus()
}
