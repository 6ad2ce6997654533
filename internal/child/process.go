package child

import (
	"os/exec"
	"runtime"
)

// process is a started child. done is closed when it is gone.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func spawn(cmd *exec.Cmd) (*process, error) {
	if err := Apart(cmd); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The death signal of Linux follows the thread that forked, not the process:
		// keep that thread until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is killed, as a rule; why it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the child, paused or not, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.done
}
