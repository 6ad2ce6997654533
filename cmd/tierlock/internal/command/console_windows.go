package command

import (
	"os"
	"syscall"
)

// These are the events that a console sends to the processes attached to it.
const (
	ctrlC      = 0
	ctrlBreak  = 1
	ctrlLogoff = 5
)

// The variable ending has the signals that end a run while it waits for the lock.
var ending = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}

// catch returns the events of the console as signals. Ctrl-Break becomes TERM. Ctrl-C, and everything that ends the console, becomes INT.
func catch() <-chan os.Signal { return catchAs(syscall.SIGTERM) }

// catchInBackground is like catch, for the keeper, which leads a separate process group. Windows makes such a group ignore Ctrl-C, and the
// command would inherit this, so it is undone here. The front sends Ctrl-Break for every reason to end.
func catchInBackground() <-chan os.Signal {
	caught := catchAs(syscall.SIGINT)
	setConsoleCtrlHandler.Call(0, 0)
	return caught
}

func catchAs(forBreak os.Signal) <-chan os.Signal {
	caught := make(chan os.Signal, 64)
	tell := func(event uintptr) uintptr {
		var sig os.Signal = syscall.SIGINT
		switch event {
		case ctrlBreak:
			sig = forBreak
		case ctrlLogoff: // any user may have logged off; only services get this event
			return 1
		}
		select {
		case caught <- sig:
		default:
		}
		if event > ctrlBreak { // the console is about to end, and this process would end as soon as this function returns
			select {}
		}
		return 1
	}
	setConsoleCtrlHandler.Call(syscall.NewCallback(tell), 1)
	return caught
}

// suspends reports whether sig stops a run that waits. On Windows no signal does.
func suspends(os.Signal) bool { return false }

// endedBy returns the signal that ended a process. If the process ended by itself, it returns 0.
func endedBy(status syscall.WaitStatus) syscall.Signal {
	const controlCExit = 0xC000013A
	if status.ExitCode == controlCExit {
		return syscall.SIGINT
	}
	return 0
}

// A terminal is a console on Windows. All processes share it, so its methods do nothing.
type terminal struct{}

func openTerminal() terminal    { return terminal{} }
func (terminal) takeFrom(int)   {}
func (terminal) stop(int)       {}
func (terminal) leave(int, int) {}

// launch starts the keeper as the leader of a process group, so that Ctrl-Break can be sent only to this group.
func (f *front) launch(theirs lineEnd) error {
	const newProcessGroup = 0x200
	f.keeper.SysProcAttr = &syscall.SysProcAttr{CreationFlags: newProcessGroup}
	for _, file := range []*os.File{theirs.in, theirs.out} {
		handle := syscall.Handle(file.Fd())
		if err := syscall.SetHandleInformation(handle, syscall.HANDLE_FLAG_INHERIT, syscall.HANDLE_FLAG_INHERIT); err != nil {
			return err
		}
		f.keeper.SysProcAttr.AdditionalInheritedHandles = append(f.keeper.SysProcAttr.AdditionalInheritedHandles, handle)
	}
	if err := f.keeper.Start(); err != nil {
		return err
	}
	go func() {
		f.keeper.Wait()
		f.status = f.keeper.ProcessState.Sys().(syscall.WaitStatus)
		close(f.ended)
		close(f.gone)
	}()
	return nil
}

// pass forwards events that the keeper and the command may not have received. Ctrl-Break may have gone only to the process group of this
// process, and the keeper gets no events while it starts.
func (f *front) pass(sig os.Signal) {
	if sig == syscall.SIGTERM || f.group == 0 {
		generateConsoleCtrlEvent.Call(ctrlBreak, uintptr(f.keeper.Process.Pid))
	}
}

// slay kills the keeper. This closes the keeper's handle of the job object, and Windows then ends all processes in the job.
func (f *front) slay() {
	f.keeper.Process.Kill()
	<-f.ended
}

// takePipe reports whether fd is the handle of a pipe. It makes the handle no longer inheritable.
func takePipe(fd int) bool {
	if kind, err := syscall.GetFileType(syscall.Handle(fd)); err != nil || kind != syscall.FILE_TYPE_PIPE {
		return false
	}
	return syscall.SetHandleInformation(syscall.Handle(fd), syscall.HANDLE_FLAG_INHERIT, 0) == nil
}
