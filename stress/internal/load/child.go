package load

import (
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// Children are all worker processes of a run.
type Children []*Child

// Child is the coordinator's side of one worker.
type Child struct {
	*twin.Twin

	ready    chan struct{} // closed when the worker is ready, or gone
	reported chan struct{} // closed when tally is set, or when the worker is gone
	gone     chan struct{} // closed when the process has ended and exit is set
	tally    *evidence.Tally
	exit     error
}

// startChildren starts the workers of a run.
func startChildren(life context.Context, cfg Config, paths []string, dir string) (Children, error) {
	var c Children
	for i := range cfg.Procs {
		e, err := StartChild(life, Task{Config: cfg, Process: i + 1, LockPaths: paths, Dir: dir})
		if err != nil {
			c.Dismiss()
			return nil, fmt.Errorf("start a worker: %w", err)
		}
		c = append(c, e)
	}
	return c, nil
}

// StartChild starts a worker. The worker is killed at the end of the context life.
func StartChild(life context.Context, t Task) (*Child, error) {
	cmd, err := twin.Command(life, "worker")
	if err != nil {
		return nil, err
	}
	return StartProgram(cmd, t)
}

// StartProgram starts a command that does the work of a worker.
func StartProgram(cmd *exec.Cmd, t Task) (*Child, error) {
	started, err := twin.Start(cmd, t)
	if err != nil {
		return nil, err
	}
	e := &Child{Twin: started, ready: make(chan struct{}), reported: make(chan struct{}), gone: make(chan struct{})}
	go e.listen()
	return e, nil
}

// The method listen reads the messages of the worker until the worker exits.
func (e *Child) listen() {
	isReady := false
	for {
		var m message
		if err := e.Out.Decode(&m); err != nil {
			break
		}
		switch {
		case m.Ready:
			isReady = true
			close(e.ready)
		case m.Tally != nil:
			e.tally = m.Tally
			close(e.reported)
		}
	}
	e.exit = e.Cmd.Wait()
	close(e.gone)
	if !isReady {
		close(e.ready)
	}
	if e.tally == nil {
		close(e.reported)
	}
}

// The method await returns when each worker has reached the milestone.
func (c Children) await(milestone func(*Child) <-chan struct{}) {
	for _, e := range c {
		<-milestone(e)
	}
}

func (c Children) tell(order string) {
	for _, e := range c {
		_, _ = io.WriteString(e.In, order+"\n") // if a worker has died, its tally is missing, which shows the death
	}
}

// Go tells all workers to begin.
func (c Children) Go() { c.tell("go") }

// Stop tells all workers to stop. It returns when all have reported.
func (c Children) Stop() {
	c.tell("stop")
	c.awaitTallies()
}

func (c Children) awaitTallies() {
	c.await(func(e *Child) <-chan struct{} { return e.reported })
}

// Dismiss closes the input of the workers and waits until they have exited.
func (c Children) Dismiss() {
	for _, e := range c {
		_ = e.In.Close()
	}
	c.await(func(e *Child) <-chan struct{} { return e.gone })
}

// Tallies returns the tallies of the workers. The tally of a worker that did not end normally is nil. Call Dismiss first.
func (c Children) Tallies() []*evidence.Tally {
	tallies := make([]*evidence.Tally, len(c))
	for i, e := range c {
		if e.exit == nil {
			tallies[i] = e.tally
		}
	}
	return tallies
}
