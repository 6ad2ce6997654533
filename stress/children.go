package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
)

// children is all worker processes of a run.
type children []*child

// child is the coordinator's side of one worker.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	ready    chan struct{} // closed when the worker is ready, or gone
	reported chan struct{} // closed when report is set, or the worker is gone
	gone     chan struct{} // closed when the process has ended, and exit is set
	report   *report
	exit     error
	progress atomic.Pointer[live] // never nil
}

func startWorkers(life context.Context, cfg Config, paths []string, dir string) (children, error) {
	var c children
	for i := range cfg.Procs {
		e, err := startWorker(life, task{Config: cfg, Process: i + 1, LockPaths: paths, Dir: dir})
		if err != nil {
			c.dismiss()
			return nil, fmt.Errorf("start a worker: %w", err)
		}
		c = append(c, e)
	}
	return c, nil
}

func startWorker(life context.Context, t task) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	e := &child{ready: make(chan struct{}), reported: make(chan struct{}), gone: make(chan struct{})}
	e.progress.Store(&live{})
	e.cmd = exec.CommandContext(life, self)
	e.cmd.Env = append(os.Environ(), workerEnv+"="+string(encoded))
	e.cmd.Stderr = os.Stderr
	// A Ctrl-C in the terminal is for the coordinator alone, which tells its workers.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(e.cmd.SysProcAttr)
	in, err1 := e.cmd.StdinPipe()
	out, err2 := e.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	e.in = in
	go e.listen(out)
	return e, nil
}

// listen follows the worker until it ends.
func (e *child) listen(out io.Reader) {
	decoder := json.NewDecoder(out)
	isReady := false
	for {
		var m message
		if err := decoder.Decode(&m); err != nil {
			break
		}
		switch {
		case m.Ready:
			isReady = true
			close(e.ready)
		case m.Live != nil:
			e.progress.Store(m.Live)
		case m.Report != nil:
			e.report = m.Report
			close(e.reported)
		}
	}
	e.exit = e.cmd.Wait()
	close(e.gone)
	if !isReady {
		close(e.ready)
	}
	if e.report == nil {
		close(e.reported)
	}
}

// await returns when each worker has reached a milestone.
func (c children) await(milestone func(*child) <-chan struct{}) {
	for _, e := range c {
		<-milestone(e)
	}
}

func (c children) tell(order string) {
	for _, e := range c {
		_, _ = io.WriteString(e.in, order+"\n") // a worker that died is found out by its missing report
	}
}

// dismiss ends the input of the workers and waits until they are gone.
func (c children) dismiss() {
	for _, e := range c {
		_ = e.in.Close()
	}
	c.await(func(e *child) <-chan struct{} { return e.gone })
}

// reports are what the workers found; nil for one that did not end well. They are to be
// dismissed first.
func (c children) reports() []*report {
	reports := make([]*report, len(c))
	for i, e := range c {
		if e.exit == nil {
			reports[i] = e.report
		}
	}
	return reports
}

// total is the progress of all.
func (c children) total() live {
	var sum live
	for _, e := range c {
		p := e.progress.Load()
		sum.Acquisitions += p.Acquisitions
		sum.Overlaps += p.Overlaps
	}
	return sum
}
