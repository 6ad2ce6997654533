//go:build linux || darwin || freebsd

package command

import (
	"os"
	"os/signal"
	"syscall"
)

// launch starts the keeper outside of the shell's job, so that it does not get the job's signals.
func (f *front) launch(theirs lineEnd) error {
	adopt() // what the keeper leaves behind, if it is killed
	for _, file := range []*os.File{theirs.in, theirs.out} {
		syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFD, 0)
	}
	f.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := f.keeper.Start(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGTTOU) // nothing is executed any more that would inherit that
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

// slay kills the keeper, the command, and all processes that it has started.
func (f *front) slay() {
	if f.group > 0 {
		signalRest(f.group, syscall.SIGKILL) // before the keeper's end changes which processes are its descendants
	}
	select {
	case <-f.ended: // its pid may be another's
	default:
		f.keeper.Process.Kill()
	}
	slay(f.group, f.gone, f.in.resisted)
	<-f.ended
}

// takePipe reports whether a descriptor is that of a pipe, and makes it no longer inheritable.
func takePipe(fd int) bool {
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return false
	}
	syscall.CloseOnExec(fd)
	return true
}
