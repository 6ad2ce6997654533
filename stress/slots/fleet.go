package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tierlock/tierlock/internal/test/child"
	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

const (
	processes = 3
	patience  = time.Minute // limits each wait that should take seconds
)

// fleet has the processes of a run.
type fleet struct {
	plan
	task task            // of each process, but for its clock
	life context.Context // all processes are killed when it ends

	mu      sync.Mutex // guards the fields below
	members []*member
	verdict verdict
}

type member struct {
	*twin.Twin
	stopped bool
	gone    chan struct{} // closed when the process has ended and exit is set
	exit    error
}

// The method run starts a server and the processes, kills and stops the processes, and judges the runs. If there are violations, the log is
// kept.
func (p plan) run(ctx context.Context, stderr io.Writer) (v verdict, err error) {
	cluster, err := p.Store.Start(ctx, store.Shape{Members: 1, Hasty: true})
	if err != nil {
		return v, err
	}
	defer cluster.Stop()
	dir, err := os.MkdirTemp("", "tierlock-slots-")
	if err != nil {
		return v, err
	}
	life, kill := context.WithCancel(ctx)
	f := &fleet{plan: p, life: life, task: task{
		Store: p.Store, Servers: cluster.Addrs(), Session: p.Session, Interval: p.Interval, Log: runLog(filepath.Join(dir, "runs")),
	}}
	err = f.torment()
	if err == nil {
		f.end()
		err = f.judge(ctx)
	}
	kill()
	for _, m := range f.members {
		<-m.gone
	}
	if err == nil && len(f.verdict.Violations) > 0 {
		fmt.Fprintln(stderr, "slots: the log of the runs is kept in", f.task.Log)
		return f.verdict, nil
	}
	return f.verdict, errors.Join(err, os.RemoveAll(dir))
}

// torment starts the processes. Once slots run, it kills and stops processes. It returns when slots run again after that.
func (f *fleet) torment() error {
	for range processes {
		if err := f.launch(); err != nil {
			return err
		}
	}
	if err := f.await(func(e entry) bool { return e.What == began }); err != nil {
		return err
	}
	tick := time.NewTicker(f.Pause)
	defer tick.Stop()
	var stops sync.WaitGroup
	defer stops.Wait()
	for n := range int(f.Duration / f.Pause) {
		select {
		case <-f.life.Done():
			return context.Cause(f.life)
		case <-tick.C:
		}
		if err := f.kill(n%2 == 0); err != nil {
			return err
		}
		if n%3 == 0 {
			stops.Go(f.stop)
		}
	}
	stops.Wait()
	due, healed := time.Now(), clock.Now()
	return f.await(func(e entry) bool { return e.What == began && e.At > healed && e.Time.After(due) })
}

// launch starts a process. Its clock is ahead by a random time.
func (f *fleet) launch() error {
	t := f.task
	t.Ahead = time.Duration(rand.Int64N(int64(f.Skew) + 1))
	cmd, err := twin.Command(f.life, "worker")
	if err != nil {
		return err
	}
	started, err := twin.Start(cmd, t)
	if err != nil {
		return err
	}
	m := &member{Twin: started, gone: make(chan struct{})}
	f.members = append(f.members, m)
	go func() {
		m.exit = m.Cmd.Wait()
		close(m.gone)
	}()
	return nil
}

// The method await waits until an entry of the log is as required. If that takes too long, it reports a violation.
func (f *fleet) await(required func(entry) bool) (err error) {
	ctx, cancel := context.WithTimeout(f.life, patience)
	defer cancel()
	late := child.Until(ctx, func() bool {
		var entries []entry
		entries, err = f.task.Log.read()
		return err != nil || slices.ContainsFunc(entries, required)
	})
	if late != nil && f.life.Err() == nil {
		f.verdict.violated("no slot has run for %v", patience)
		late = nil
	}
	return errors.Join(late, err)
}

// runner returns the process that has begun the newest run. It returns nil if that process was killed or is stopped.
func (f *fleet) runner() *member {
	entries, _ := f.task.Log.read()
	for _, e := range slices.Backward(entries) {
		if e.What == began {
			for _, m := range f.running() {
				if m.Cmd.Process.Pid == e.PID {
					return m
				}
			}
			break
		}
	}
	return nil
}

// running returns the processes that are not stopped.
func (f *fleet) running() []*member {
	return slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return m.stopped })
}

// kill kills the runner, or a random process, and starts another one.
func (f *fleet) kill(runner bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	victim := f.runner()
	if all := f.running(); !runner || victim == nil {
		victim = all[rand.IntN(len(all))] // at least two processes run, because at most one is stopped
	}
	select {
	case <-victim.gone:
		f.verdict.violated("a process ended by itself: %v", victim.exit)
	default:
	}
	_ = victim.Cmd.Process.Kill()
	<-victim.gone
	f.verdict.Kills++
	f.members = slices.DeleteFunc(f.members, func(m *member) bool { return m == victim })
	return f.launch()
}

// stop stops the runner for longer than its lease.
func (f *fleet) stop() {
	ctx, cancel := context.WithTimeout(f.life, patience)
	defer cancel()
	var victim *member
	err := child.Until(ctx, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if victim = f.runner(); victim == nil || len(f.running()) < processes {
			return false
		}
		victim.stopped = child.Pause(victim.Cmd.Process) == nil
		return victim.stopped
	})
	if err == nil {
		clock.Sleep(f.Session*5/4, f.life.Done())
		err = child.Resume(victim.Cmd.Process) // before the mutex is locked: its owner may wait for the log, which the victim may have locked
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.verdict.violated("no process was stopped: %v", err)
		return
	}
	victim.stopped = false
	f.verdict.Stops++
}

// end asks all processes to end, and waits for them.
func (f *fleet) end() {
	for _, m := range f.members {
		_ = m.In.Close()
		timer := time.AfterFunc(patience, func() { _ = m.Cmd.Process.Kill() })
		<-m.gone
		if timer.Stop(); m.exit != nil {
			f.verdict.violated("a process did not end as it was asked to: %v", m.exit)
		}
	}
}

// judge judges the log and the ledger.
func (f *fleet) judge(ctx context.Context) error {
	locker, mutex, err := f.task.open(ctx)
	if err != nil {
		return err
	}
	defer locker.Close()
	value, err := mutex.Load(ctx)
	if err != nil {
		return err
	}
	var end ledger
	if err := json.Unmarshal(value.Data, &end); err != nil {
		return err
	}
	entries, err := f.task.Log.read()
	f.verdict.judge(entries, f.Interval, end)
	return err
}
