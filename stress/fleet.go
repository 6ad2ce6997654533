package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"
)

// fleet is the worker processes of a chaos run.
type fleet struct {
	life     context.Context // of all workers
	template task
	slots    []*slot
	random   *rand.Rand
}

// slot has one worker at a time.
type slot struct {
	relay   *relay
	child   *child
	process int // number of the worker: see slotOf
	deaths  int // of workers that nobody killed
}

func newFleet(life context.Context, t task, random *rand.Rand) (*fleet, error) {
	f := &fleet{life: life, template: t, random: random}
	for i := range t.Procs {
		r, err := newRelay(t.Servers, t.RTT/2)
		if err == nil {
			s := &slot{relay: r, process: i + 1 - t.Procs}
			f.slots = append(f.slots, s)
			err = f.launch(s)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("start a worker: %w", err)
		}
	}
	return f, nil
}

// launch puts a new worker into a slot and lets it go.
func (f *fleet) launch(s *slot) error {
	t := f.template
	t.Process = s.process + t.Procs
	t.Servers = s.relay.addrs()
	if t.Lock == "tier" {
		t.HandOff = f.mix(t.HandOff, 0, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond)
		t.Linger = f.mix(t.Linger, 0, 0, 5*time.Millisecond, 100*time.Millisecond)
	}
	child, err := startWorker(f.life, t)
	if err != nil {
		return err
	}
	s.child, s.process = child, t.Process
	children{child}.tell("go")
	return nil
}

// slotOf is the place of a worker among procs others. A restarted one has a number that
// nobody had before.
func slotOf(process, procs int) int { return (process - 1) % procs }

// mix draws one of the choices, unless the command line has chosen.
func (f *fleet) mix(chosen *time.Duration, choices ...time.Duration) *time.Duration {
	if chosen != nil {
		return chosen
	}
	return &choices[f.random.IntN(len(choices))]
}

func (f *fleet) children() children {
	var c children
	for _, s := range f.slots {
		if s.child != nil {
			c = append(c, s.child)
		}
	}
	return c
}

// Close waits for the end of all workers, and cuts what they leave.
func (f *fleet) Close() error {
	f.children().dismiss()
	var errs []error
	for _, s := range f.slots {
		errs = append(errs, s.relay.Close())
	}
	return errors.Join(errs...)
}

// kill is kill -9.
func (s *slot) kill() {
	select {
	case <-s.child.gone:
		s.deaths++
	default:
		_ = s.child.cmd.Process.Kill() // fails only if it is gone already
	}
	<-s.child.gone
}

// pause stops the worker and reports whether that has happened.
func (s *slot) pause() bool {
	if s.child.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return false
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !s.paused() {
		select {
		case <-s.child.gone:
			return false
		case <-tick.C:
		}
	}
	return true
}

// paused reports whether all threads have stopped. Where the system does not tell, they
// are taken to have.
func (s *slot) paused() bool {
	threads := fmt.Sprintf("/proc/%d/task", s.child.cmd.Process.Pid)
	entries, err := os.ReadDir(threads)
	if err != nil {
		return true
	}
	for _, e := range entries {
		stat, err := os.ReadFile(threads + "/" + e.Name() + "/stat")
		if err != nil {
			continue // the thread has ended
		}
		_, state, _ := strings.Cut(string(stat), ") ")
		if !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

func (s *slot) resume() { _ = s.child.cmd.Process.Signal(syscall.SIGCONT) }
