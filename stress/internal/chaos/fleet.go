package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/relay"
)

// fleet has the worker processes of a run with faults.
type fleet struct {
	life     context.Context // all workers are killed when it ends
	template load.Task
	slots    []*slot
	random   *rand.Rand
}

// slot has a worker. If the worker is killed, another worker takes its place in the slot.
type slot struct {
	relay   *relay.Relay
	child   *load.Child
	process int // number of the worker: see [evidence.SlotOf]
	deaths  int // number of workers that died without being killed by a fault
}

func newFleet(life context.Context, t load.Task, random *rand.Rand) (*fleet, error) {
	f := &fleet{life: life, template: t, random: random}
	for i := range t.Procs {
		r, err := relay.New(t.Servers, t.RTT/2)
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

// The method launch starts a new worker in a slot and tells it to begin.
func (f *fleet) launch(s *slot) error {
	t := f.template
	t.Process = s.process + t.Procs
	t.Servers = s.relay.Addrs()
	if t.Kind().Tier {
		t.HandOff = f.mix(t.HandOff, 0, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond)
		t.Linger = f.mix(t.Linger, 0, 0, 5*time.Millisecond, 100*time.Millisecond)
	}
	child, err := load.StartChild(f.life, t)
	if err != nil {
		return err
	}
	s.child, s.process = child, t.Process
	load.Children{child}.Go()
	return nil
}

// The method mix returns one of the choices at random. If the command line has set the value, mix returns that value.
func (f *fleet) mix(chosen *time.Duration, choices ...time.Duration) *time.Duration {
	if chosen != nil {
		return chosen
	}
	return &choices[f.random.IntN(len(choices))]
}

func (f *fleet) children() load.Children {
	var c load.Children
	for _, s := range f.slots {
		if s.child != nil {
			c = append(c, s.child)
		}
	}
	return c
}

// Close waits until all workers have exited. Then it closes their relays.
func (f *fleet) Close() error {
	f.children().Dismiss()
	var errs []error
	for _, s := range f.slots {
		errs = append(errs, s.relay.Close())
	}
	return errors.Join(errs...)
}

func (s *slot) kill() {
	if !s.child.Kill() {
		s.deaths++
	}
}
