package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/child"
	"github.com/tierlock/tierlock/mutexbool"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// memberEnv marks a process of the fleet; its value is the task.
const memberEnv = "TIERLOCK_CAPACITY"

// task is what a process of the fleet is to do.
type task struct {
	Server     string
	Session    time.Duration
	Paths      []string
	Goroutines int
}

// answer is what a process says to each order, and unasked when it is connected.
type answer struct {
	Turns int64 // that have ended
	Held  int64 // locks that it holds
	Error string
}

// member is the process itself. Its goroutines take turns for good; a section lasts while
// the gate is shut.
type member struct {
	task  task
	locks *tier.Registry
	open  mutexbool.Bool // the gate
	turns atomic.Int64
	held  atomic.Int64
	fault atomic.Pointer[string] // the first error of a turn
	all   sync.WaitGroup
}

// beMember obeys the orders that come in, one on each line, until they end: queue, open,
// shut, look.
func beMember(in io.Reader, out io.Writer) error {
	var m member
	if err := json.Unmarshal([]byte(os.Getenv(memberEnv)), &m.task); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dial, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	var err error
	m.locks, err = tierlock.Dial(dial, m.task.Server, tier.WithStrictOrder(), zklock.WithSessionTimeout(m.task.Session))
	if err != nil {
		return err
	}
	say := json.NewEncoder(out).Encode
	if err := say(m.look()); err != nil {
		return err
	}
	for orders := bufio.NewScanner(in); orders.Scan(); {
		switch orders.Text() {
		case "queue":
			m.queue(ctx)
		case "open":
			m.open.Set()
		case "shut":
			m.open.Clear()
		}
		if err := say(m.look()); err != nil {
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

// peer is a member as the coordinator sees it.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startPeer returns once the process is connected. The end of ctx kills it.
func startPeer(ctx context.Context, t task) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := child.Apart(cmd); err != nil {
		return nil, err
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{cmd, in, json.NewDecoder(out)}
	if _, err := p.hear(); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

func (p *peer) hear() (a answer, err error) {
	if err = p.out.Decode(&a); err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

func (p *peer) order(word string) (answer, error) {
	if _, err := fmt.Fprintln(p.in, word); err != nil {
		return answer{}, err
	}
	return p.hear()
}

// end ends the orders, and returns when the process has gone.
func (p *peer) end() error {
	_ = p.in.Close()
	return p.cmd.Wait()
}
