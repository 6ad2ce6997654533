package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/stress/internal/twin"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// task tells a member of the fleet what to do.
type task struct {
	Server     string
	Session    time.Duration
	Paths      []string
	Goroutines int
}

// answer is what a member prints after each order. It prints one more at the beginning, when it is connected.
type answer struct {
	Turns int64 // number of acquisitions whose hold was released
	Held  int64 // number of locks that the member holds
	Error string
}

// member is a process of the fleet. Its goroutines acquire and release locks again and again. While the gate is shut, each goroutine stays
// in its section.
type member struct {
	task  task
	locks *tier.Registry
	open  mutexbool.Bool // the gate
	turns atomic.Int64
	held  atomic.Int64
	fault atomic.Pointer[string] // the first error that a turn has returned
	all   sync.WaitGroup
}

// beMember executes the orders on its input until the input ends. The orders are queue, open, shut and look.
func beMember() error {
	var m member
	orders, err := twin.Begin(&m.task)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dial, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	m.locks, err = zklock.Dial(dial, m.task.Server, tier.WithStrictOrder(), tier.WithLeaseTTL(m.task.Session))
	if err != nil {
		return err
	}
	if err := twin.Say(m.look()); err != nil {
		return err
	}
	for orders.Scan() {
		switch orders.Text() {
		case "queue":
			m.queue(ctx)
		case "open":
			m.open.Set()
		case "shut":
			m.open.Clear()
		}
		if err := twin.Say(m.look()); err != nil {
			return err
		}
	}
	cancel()
	m.all.Wait()
	return m.locks.Close()
}

func (m *member) queue(ctx context.Context) {
	for _, path := range m.task.Paths {
		mutex := m.locks.Mutex(path)
		for range m.task.Goroutines {
			m.all.Go(func() { m.takeTurns(ctx, mutex) })
		}
	}
}

func (m *member) takeTurns(ctx context.Context, mutex *tier.Mutex) {
	for ctx.Err() == nil {
		hold, err := mutex.Acquire(ctx)
		if err == nil {
			m.held.Add(1)
			select {
			case <-m.open.C():
			case <-ctx.Done():
			}
			m.held.Add(-1)
			err = hold.Release()
			m.turns.Add(1)
		}
		if err != nil && ctx.Err() == nil {
			text := err.Error()
			m.fault.CompareAndSwap(nil, &text)
			return
		}
	}
}

func (m *member) look() answer {
	a := answer{Turns: m.turns.Load(), Held: m.held.Load()}
	if fault := m.fault.Load(); fault != nil {
		a.Error = *fault
	}
	return a
}

// peer is the coordinator's side of a member.
type peer struct{ *twin.Twin }

// startPeer starts a member and returns when the member is connected. The member is killed when ctx ends.
func startPeer(ctx context.Context, t task) (*peer, error) {
	cmd, err := twin.Command(ctx, "member")
	if err != nil {
		return nil, err
	}
	started, err := twin.Start(cmd, t)
	if err != nil {
		return nil, err
	}
	p := &peer{started}
	if _, err := p.hear(); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

func (p *peer) hear() (a answer, err error) {
	if err = p.Out.Decode(&a); err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

func (p *peer) order(word string) (answer, error) {
	if _, err := fmt.Fprintln(p.In, word); err != nil {
		return answer{}, err
	}
	return p.hear()
}

// The method end closes the input of the member and waits until its process has exited.
func (p *peer) end() error {
	_ = p.In.Close()
	return p.Cmd.Wait()
}
