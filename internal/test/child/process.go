package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
)

// process is a started child together with the processes that it has started. done is closed when all of them are gone.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func spawn(cmd *exec.Cmd) (*process, error) {
	if err := Apart(cmd); err != nil {
		return nil, err
	}
	// Only the child and its descendants have the writing end of the pipe, so the pipe ends when they are gone.
	ended, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, alive)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the death signal when the thread that forked ends, not the process. The thread is therefore kept until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer ended.Close()
		err := cmd.Start()
		alive.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed, as a rule; why it ended is in its log
			_, _ = io.Copy(io.Discard, ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// pause stops the child first, so that it starts no further processes.
func (p *process) pause() error {
	if err := Pause(p.cmd.Process); err != nil {
		return err
	}
	// The signal may take a moment, in which the child may still start one more process.
	var paused []int
	for {
		pids := kin(p.cmd.Process.Pid)
		fresh := slices.DeleteFunc(pids, func(pid int) bool { return slices.Contains(paused, pid) })
		if len(fresh) == 0 {
			return nil
		}
		if err := each(fresh, Pause); err != nil {
			return err
		}
		paused = append(paused, fresh...)
	}
}

func (p *process) resume() error {
	return errors.Join(each(kin(p.cmd.Process.Pid), Resume), Resume(p.cmd.Process))
}

// kill ends the child and all processes that it has started, paused or not, and returns when they are gone.
func (p *process) kill() {
	if p.pause() == nil {
		_ = each(kin(p.cmd.Process.Pid), (*os.Process).Kill)
	}
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.done
}

func each(pids []int, do func(*os.Process) error) error {
	var errs []error
	for _, pid := range pids {
		process, err := os.FindProcess(pid)
		if err == nil {
			err = do(process)
			_ = process.Release()
		}
		if !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
