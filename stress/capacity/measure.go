package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/stress/internal/clock"
)

// row is the cost of one stage.
type row struct {
	stage    string
	took     time.Duration
	turns    float64 // number of turns that ended in the stage; a turn is an acquisition and its release
	expected figures
	counted  figures
}

// fleet has the worker processes, and the address of the server that counts.
type fleet struct {
	plan  plan
	addr  string
	asked int // how often the server was asked for its counts
	peers []*peer
	rows  []row
}

// longest limits the time for the whole measurement.
const longest = 5 * time.Minute

// measure runs the stages. If a stage fails, measure returns the rows of the stages before it.
func (p plan) measure(ctx context.Context) (rows []row, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, errors.New("it takes too long on this machine"))
	defer cancel()
	server, err := zkserver.Start(ctx, zkserver.Config{TickTime: min(2*time.Second, p.Session/8), NoSync: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	f := &fleet{plan: p, addr: server.Addr()}
	defer func() { err = errors.Join(err, f.end()) }() // runs before the server is stopped
	for i := range p.Procs {
		peer, err := startPeer(ctx, task{f.addr, p.Session, p.pathsOf(i), p.Goroutines})
		if err != nil {
			return nil, err
		}
		f.peers = append(f.peers, peer)
	}
	err = f.stages(ctx)
	return f.rows, err
}

func (p plan) pathsOf(process int) []string {
	var paths []string
	for i := range p.Locks {
		if p.Private {
			i += process * p.Locks
		}
		paths = append(paths, fmt.Sprintf("/capacity/%d", i))
	}
	return paths
}

func (f *fleet) stages(ctx context.Context) error {
	p := f.plan
	first := f.peers[:1]
	if p.Private {
		first = f.peers
	}
	wait := func() error {
		clock.Sleep(p.Session, ctx.Done())
		return context.Cause(ctx)
	}
	steps := []struct {
		name string
		do   func() error
		cost func(took time.Duration, turns float64) figures
	}{
		{"connected", wait, func(took time.Duration, _ float64) figures { return p.beats(took, 0) }},
		{"new locks", func() error { return f.first(ctx, first) }, func(took time.Duration, _ float64) figures {
			return p.fresh().plus(p.beats(took, len(first)))
		}},
		{"others queue", func() error { return f.others(ctx, f.peers[len(first):]) }, func(took time.Duration, _ float64) figures {
			return p.join().plus(p.beats(took, p.Procs)).plus(p.firstLooks(took))
		}},
		{"", wait, nil}, // waits until the waiters read at different times, and not all at once
		{"waiting", wait, func(took time.Duration, _ float64) figures { return p.beats(took, p.Procs).plus(p.looks(took)) }},
		{"turns", func() error { return f.takeTurns(ctx) }, func(took time.Duration, turns float64) figures {
			return p.turns(turns).plus(p.beats(took, p.Procs)).plus(p.looks(took))
		}},
	}
	for _, s := range steps {
		if s.name == "others queue" && p.Private {
			continue
		}
		before, turns, err := f.look()
		begun := time.Now()
		if err == nil {
			err = s.do()
		}
		took := time.Since(begun)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		after, turned, err := f.look()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.cost != nil {
			f.rows = append(f.rows, row{s.name, took, turned - turns, s.cost(took, turned-turns), after.minus(before)})
		}
	}
	return nil
}

// The method look reads the counts of the server. It also asks the processes how many turns they have finished.
func (f *fleet) look() (counted figures, turns float64, err error) {
	for _, p := range f.peers {
		a, err := p.order("look")
		if err != nil {
			return counted, 0, err
		}
		turns += float64(a.Turns)
	}
	counted, err = ask(f.addr, &f.asked)
	return counted, turns, err
}

func (f *fleet) tell(peers []*peer, word string) error {
	for _, p := range peers {
		if _, err := p.order(word); err != nil {
			return err
		}
	}
	return nil
}

// fleet.first lets processes acquire locks on new paths, one process after the other, and waits until their nodes are watched.
func (f *fleet) first(ctx context.Context, peers []*peer) error {
	for _, p := range peers {
		if _, err := p.order("queue"); err != nil {
			return err
		}
		for held := int64(0); held < int64(f.plan.Locks); {
			a, err := p.order("look")
			if err != nil {
				return err
			}
			held = a.Held
			if clock.Sleep(50*time.Millisecond, ctx.Done()); ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return f.settle(ctx)
}

// The method settle waits until all nodes are watched as planned.
func (f *fleet) settle(ctx context.Context) error {
	clock.Sleep(f.plan.Session/6, ctx.Done())
	return settle(ctx, f.addr, &f.asked)
}

// fleet.others lets processes queue one after the other. If all queued at once, the server would be so busy that heartbeats would be late.
func (f *fleet) others(ctx context.Context, peers []*peer) error {
	now, err := ask(f.addr, &f.asked)
	for want := now.Znodes; err == nil && len(peers) > 0; peers = peers[1:] {
		want += float64(f.plan.Locks)
		err = f.tell(peers[:1], "queue")
		for err == nil && now.Znodes < want {
			if clock.Sleep(50*time.Millisecond, ctx.Done()); ctx.Err() != nil {
				return context.Cause(ctx)
			}
			now, err = ask(f.addr, &f.asked)
		}
	}
	return errors.Join(err, f.settle(ctx))
}

func (f *fleet) takeTurns(ctx context.Context) error {
	if err := f.tell(f.peers, "open"); err != nil {
		return err
	}
	clock.Sleep(f.plan.Turns, ctx.Done())
	if err := f.tell(f.peers, "shut"); err != nil {
		return err
	}
	return f.settle(ctx)
}

// The method end lets the processes leave the queues and exit.
func (f *fleet) end() error {
	for _, p := range f.peers {
		_ = p.In.Close() // closes all inputs first, so that the processes end at the same time
	}
	var errs []error
	for _, p := range f.peers {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}
