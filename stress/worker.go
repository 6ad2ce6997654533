package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// workerEnv marks a worker process; its value is the task.
const workerEnv = "TIERLOCK_STRESS_WORKER"

// task is what one worker is to do.
type task struct {
	Config
	Process   int // from 1
	LockPaths []string
	Dir       string // of the registers
}

// message is one line of a worker's standard output.
//
// A worker says that it is ready, waits for a line on its standard input, works,
// reports, and keeps its session until its input ends, so that the nodes it leaves can
// be counted. Another line, or the end of the input, stops it early: that is how the
// coordinator interrupts it and how it notices that the coordinator is gone.
type message struct {
	Ready  bool    `json:",omitempty"`
	Live   *live   `json:",omitempty"`
	Report *report `json:",omitempty"`
}

// live is the progress of a worker.
type live struct{ Acquisitions, Overlaps int64 }

const (
	dialTimeout  = 10 * time.Second
	dialPatience = time.Minute // under chaos, where the server may be about to start, on a busy machine
	livePeriod   = 200 * time.Millisecond
	retryPause   = 10 * time.Millisecond // after a failed attempt
	drainTime    = 20 * time.Second      // for the turns that were under way when the run ended
)

// work is the main function of a worker.
func work(taskJSON string, in io.Reader, out io.Writer) error {
	var t task
	if err := json.Unmarshal([]byte(taskJSON), &t); err != nil {
		return err
	}
	w, err := newWorker(t)
	if err != nil {
		return err
	}
	orders := bufio.NewScanner(in)
	send := json.NewEncoder(out).Encode
	if err := send(message{Ready: true}); err != nil || !orders.Scan() {
		return errors.Join(err, w.locker.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.Duration)
	defer cancel()
	dismissed := make(chan struct{})
	go func() {
		defer close(dismissed)
		for orders.Scan() {
			cancel()
		}
		cancel()
	}()
	report := w.run(ctx, send)
	if err := send(message{Report: report}); err != nil {
		return errors.Join(err, w.locker.Close())
	}
	<-dismissed
	return w.locker.Close()
}

type worker struct {
	task      task
	locker    locker
	registers []*register
	witness   *witness // nil without chaos

	mu        sync.Mutex // guards the fields below
	found     report
	waits     *hdrhistogram.Histogram
	releases  *hdrhistogram.Histogram
	handOvers *hdrhistogram.Histogram
	aways     *hdrhistogram.Histogram
}

func newWorker(t task) (*worker, error) {
	patience := dialTimeout
	if t.Chaos {
		patience = dialPatience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	registers, err := newRegisters(t.Dir, len(t.LockPaths), t.judging())
	if err != nil {
		return nil, err
	}
	locker, err := dialers[t.Lock](ctx, t.Config)
	if err != nil {
		return nil, err
	}
	w := &worker{task: t, locker: locker, registers: registers}
	w.waits, w.releases, w.handOvers, w.aways = newHistogram(), newHistogram(), newHistogram(), newHistogram()
	if t.Chaos {
		if w.witness, err = newWitness(w); err != nil {
			return nil, errors.Join(err, locker.Close())
		}
	}
	w.found.Sections = make([]int64, len(t.LockPaths))
	w.found.Errors = map[string]int64{}
	return w, nil
}

func (w *worker) run(ctx context.Context, send func(any) error) *report {
	start := time.Now()
	ended := make(chan struct{}, w.task.Goroutines)
	for i := range w.task.Goroutines {
		go func() {
			w.contend(ctx, i)
			ended <- struct{}{}
		}()
	}
	tick := time.NewTicker(livePeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			_ = send(message{Live: w.progress()})
		}
	}
	elapsed := time.Since(start)
	enough := time.After(w.task.Section + drainTime)
	for i := range w.task.Goroutines {
		select {
		case <-ended:
		case <-enough:
			return w.report(elapsed, w.task.Goroutines-i)
		}
	}
	return w.report(elapsed, 0)
}

func (w *worker) progress() *live {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &live{Acquisitions: w.waits.TotalCount(), Overlaps: w.found.Overlaps}
}

func (w *worker) report(elapsed time.Duration, stuck int) *report {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.found
	r.Elapsed, r.Stuck = elapsed, int64(stuck)
	r.Errors = maps.Clone(r.Errors) // a stuck goroutine may still add to the original
	r.Wait, r.Release, r.HandOver, r.Away = w.waits.Export(), w.releases.Export(), w.handOvers.Export(), w.aways.Export()
	return &r
}

// workerMain is work as a process.
func workerMain(taskJSON string) int {
	if err := work(taskJSON, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stress worker:", err)
		return exitViolation
	}
	return exitPass
}
