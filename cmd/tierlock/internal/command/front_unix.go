//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/signal"
	"syscall"
)

// launch starts the keeper outside of the shell's job. Signals to the job therefore do not reach the keeper.
func (f *front) launch(theirs lineEnd) error {
	adopt() // if the keeper is killed, this process adopts the processes that it leaves behind
	for _, file := range []*os.File{theirs.in, theirs.out} {
		syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0)
	}
	f.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := f.keeper.Start(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTTOU) // this process starts no further process that would inherit it
	go func() {
		defer close(f.gone)
		reap(f.keeper.Process.Pid, func(status syscall.WaitStatus) {
			if !status.Stopped() {
				f.status = status
				close(f.ended)
			}
		})
	}()
	return nil
}

// pass forwards a signal to the keeper.
func (f *front) pass(sig os.Signal) { f.keeper.Process.Signal(sig) }

// slay kills the keeper, the command, and all processes that the command has started.
func (f *front) slay() {
	if f.group > 0 {
		signalRest(f.group, syscall.SIGKILL) // sent first, because the end of the keeper changes which processes are its descendants
	}
	select {
	case <-f.ended: // another process may have the same pid now
	default:
		f.keeper.Process.Kill()
	}
	slay(f.group, f.gone, f.in.resisted)
	<-f.ended
}

// takePipe reports whether fd is the descriptor of a pipe. It makes the descriptor no longer inheritable.
func takePipe(fd int) bool {
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return false
	}
	syscall.CloseOnExec(fd)
	return true
}
