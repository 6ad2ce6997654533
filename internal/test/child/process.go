package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
)

// A process is a started child, together with the processes that the child has started. The channel done is closed when all of them are
// gone.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func spawn(cmd *exec.Cmd) (*process, error) {
	if err := Apart(cmd); err != nil {
		return nil, err
	}
	// Only the child and its descendants have the writing end of the pipe. Therefore the pipe ends when they are gone.
	ended, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, alive)
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux sends the death signal when the thread that started the child ends, even if the process goes on. Therefore the thread is kept
		// until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer ended.Close()
		err := cmd.Start()
		alive.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the result does not matter: the child is usually killed, and its log says why it ended
			_, _ = io.Copy(io.Discard, ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// The method pause stops the child before its descendants, so that the child starts no further processes.
func (p *process) pause() error {
	if err := Pause(p.cmd.Process); err != nil {
		return err
	}
	// The signal may take a moment. In that time, the child may still start one more process.
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

// The method kill ends the child and all processes that it has started, whether they are paused or not. It returns when they are gone.
func (p *process) kill() {
	if p.pause() == nil {
		_ = each(kin(p.cmd.Process.Pid), (*os.Process).Kill)
	}
	_ = p.cmd.Process.Kill() // fails only if the child has already ended
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
