package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/queue"
	"github.com/tierlock/tierlock/stress/internal/durations"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/rule"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/trace"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

const (
	dialTimeout  = 10 * time.Second
	dialPatience = time.Minute           // under chaos the server may just be starting, on a busy machine
	retryPause   = 10 * time.Millisecond // the pause after a failed attempt
	// DrainTime is how long a run waits at its end for acquisitions that are under way.
	DrainTime = 20 * time.Second
)

// If this process was started as a worker, BeWorker does the work of a worker and exits. The function main has to call it first.
func BeWorker() {
	if twin.Role() == "" {
		return
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "stress worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The function work is the main function of a worker.
func work() error {
	var t Task
	orders, err := twin.Begin(&t)
	if err != nil {
		return err
	}
	locker, err := dial(t)
	if err != nil {
		return err
	}
	return errors.Join(obey(t, locker, orders), locker.Close())
}

func dial(t Task) (store.Locker, error) {
	patience := dialTimeout
	if t.Chaos {
		patience = dialPatience
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kind, ok := t.Store.Locks[t.Lock]
	if !ok {
		return nil, fmt.Errorf("%q: no such lock", t.Lock)
	}
	options := t.options()
	if t.Traced() {
		w, err := trace.Create(t.Dir, t.Process)
		if err != nil {
			return nil, err
		}
		queue.Recorder, options.Trace = w.Record, w
	}
	return kind.Dial(ctx, options)
}

// obey executes the orders of the coordinator until there are no more.
func obey(t Task, locker store.Locker, orders *bufio.Scanner) error {
	w, err := newWorker(t, locker)
	if err != nil {
		return err
	}
	if err := twin.Say(message{Ready: true}); err != nil || !orders.Scan() {
		return err
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
	if err := twin.Say(message{Tally: w.run(ctx)}); err != nil {
		return err
	}
	<-dismissed
	return nil
}

type worker struct {
	task      Task
	rule      rule.Rule
	locker    store.Locker
	registers []*evidence.Register
	witness   *witness // nil unless the run is under chaos

	mu        sync.Mutex // guards the fields below
	found     evidence.Tally
	waits     *durations.Histogram // of exclusive sections
	shared    *durations.Histogram // waits of sections that others could share
	releases  *durations.Histogram
	handOvers *durations.Histogram
	aways     *durations.Histogram
}

func newWorker(t Task, locker store.Locker) (*worker, error) {
	paths := len(t.LockPaths)
	registers, err := evidence.NewRegisters(t.Dir, paths, t.Rule(), t.judging())
	if err != nil {
		return nil, err
	}
	w := &worker{
		task: t, rule: t.Rule(), locker: locker, registers: registers,
		found: evidence.Tally{Sections: make([]int64, paths), Shared: make([]int64, paths),
			Goroutines: make([]int64, t.Goroutines), Errors: map[string]int64{}},
		waits: durations.NewHistogram(), shared: durations.NewHistogram(), releases: durations.NewHistogram(),
		handOvers: durations.NewHistogram(), aways: durations.NewHistogram(),
	}
	if t.Chaos {
		w.witness, err = newWitness(w)
	}
	return w, err
}

func (w *worker) run(ctx context.Context) *evidence.Tally {
	store.Packets.Store(0) // the packets so far only made the connections
	start := time.Now()
	ended := make(chan struct{}, w.task.Goroutines)
	for i := range w.task.Goroutines {
		go func() {
			w.contend(ctx, i)
			ended <- struct{}{}
		}()
	}
	<-ctx.Done()
	elapsed := time.Since(start)
	enough := time.After(w.task.Section + DrainTime)
	for i := range w.task.Goroutines {
		select {
		case <-ended:
		case <-enough:
			return w.tally(elapsed, w.task.Goroutines-i)
		}
	}
	return w.tally(elapsed, 0)
}

func (w *worker) tally(elapsed time.Duration, stuck int) *evidence.Tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.found
	t.Elapsed, t.Stuck, t.Packets = elapsed, int64(stuck), store.Packets.Load()
	t.Goroutines = slices.Clone(t.Goroutines)
	t.Errors = maps.Clone(t.Errors) // Errors is cloned since a stuck goroutine may still add to the original
	t.Wait, t.SharedWait, t.Release = w.waits.Export(), w.shared.Export(), w.releases.Export()
	t.HandOver, t.Away = w.handOvers.Export(), w.aways.Export()
	return &t
}
