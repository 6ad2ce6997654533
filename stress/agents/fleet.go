package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tierlock/tierlock/stress/internal/clock"
	"github.com/tierlock/tierlock/stress/internal/evidence"
	"github.com/tierlock/tierlock/stress/internal/judge"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/relay"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// fleet has the processes of a run.
type fleet struct {
	plan
	life    context.Context // all processes are killed when it ends
	dir     string          // the directory with the files of the clients and agents
	agents  []*agent
	clients []*client
	fence   *evidence.Fence
	faults  *faults
}

// The method run starts a server, the agents and the clients. It injects faults and judges what the clients have seen. If there are
// violations, their records are kept.
func (p plan) run(ctx context.Context, stderr io.Writer) (*verdict, error) {
	programs, err := p.programs()
	if err != nil {
		return nil, err
	}
	cluster, err := p.Store.Start(ctx, store.Shape{Members: 1, Hasty: true})
	if err != nil {
		return nil, err
	}
	defer cluster.Stop()
	dir, err := os.MkdirTemp("", "tierlock-agents-")
	if err != nil {
		return nil, err
	}
	v, err := p.runIn(ctx, dir, cluster.Addrs(), programs, stderr)
	if err == nil && len(v.violations()) > 0 {
		fmt.Fprintln(stderr, "agents: what the clients saw is kept in", dir)
		return v, nil
	}
	return v, errors.Join(err, os.RemoveAll(dir))
}

func (p plan) runIn(ctx context.Context, dir string, servers []string, programs []program, stderr io.Writer) (*verdict, error) {
	name, err := p.command(ctx, dir)
	if err != nil {
		return nil, err
	}
	seen, err := p.Store.Observe(ctx, store.Place{Servers: servers, Lock: "mutex", Paths: 1})
	if err != nil {
		return nil, err
	}
	defer seen.Close()
	life, kill := context.WithTimeout(context.WithoutCancel(ctx), p.length()+2*p.patience()+load.DrainTime+time.Minute)
	defer kill()
	f := &fleet{plan: p, life: life, dir: dir, fence: evidence.NewFence(1), faults: newFaults(stderr)}
	stop, err := f.fence.Serve(dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	defer func() {
		kill()
		f.children().Dismiss()
		for _, a := range f.agents {
			<-a.gone
			_ = a.network.Close()
		}
	}()
	if err := f.launch(name, servers, seen.Paths(), programs); err != nil {
		return nil, err
	}
	fmt.Fprintf(stderr, "agents: clients in %s, seed %d, session timeout %v, lease %v\n",
		strings.Join(p.Languages, ", "), p.Seed, p.Session, p.Lease)
	return f.torment(ctx, seen)
}

// The method calm returns how long the lock may take to be acquired again after a fault, on a machine that is not busy: the session of an
// agent has to end, and a store may have a grace period as long.
func (p plan) calm() time.Duration { return 2*p.Session + time.Second }

// The method patience returns how long the run waits for the lock to be acquired again after a fault, on a busy machine.
func (p plan) patience() time.Duration { return p.calm() + 3*judge.Recovery }

// launch starts the agents and their clients.
func (f *fleet) launch(name string, servers, paths []string, programs []program) error {
	for i := range f.Agents {
		network, err := relay.New(servers, 0)
		if err != nil {
			return err
		}
		url := f.Store.URL(network.Addrs())
		a := &agent{
			network: network, socket: filepath.Join(f.dir, fmt.Sprint("agent-", i+1)), log: filepath.Join(f.dir, fmt.Sprint("log-", i+1)),
			start: func(socket string, log *os.File) *exec.Cmd {
				cmd := exec.CommandContext(f.life, name, "agent", "-store", url, "-listen", "unix:"+socket,
					"-session", f.Session.String(), "-lease", f.Lease.String())
				cmd.Stdout, cmd.Stderr = log, log
				return cmd
			},
		}
		if err := a.launch(); err != nil {
			return err
		}
		f.agents = append(f.agents, a)
	}
	for i := range f.Agents * f.Clients {
		a := i / f.Clients
		config := f.config()
		config.Servers = []string{"unix:" + f.agents[a].socket}
		c := &client{
			task: load.Task{
				Config: config, Process: i + 1 - config.Procs, Agent: a + 1, LockPaths: paths, Dir: f.dir,
				Long: f.Lease * 3 / 2, LongEvery: longEvery,
			},
			program: programs[i%f.Clients%len(programs)],
		}
		if err := c.launch(f.life); err != nil {
			return err
		}
		f.clients = append(f.clients, c)
	}
	return nil
}

// config describes the work of a client. It ends when the client is told to stop, or at the end of the run's life.
func (f *fleet) config() load.Config {
	return load.Config{
		Store: store.Agent, Lock: f.Lock, Procs: f.Agents * f.Clients, Goroutines: 1, Paths: 1, Section: f.Section,
		Duration: time.Hour, Seed: f.Seed, Chaos: true,
	}
}

// torment injects faults, lets the clients recover, and ends them. It returns the verdict.
func (f *fleet) torment(ctx context.Context, seen store.Observer) (*verdict, error) {
	config := f.config()
	c := &judge.Case{Rule: config.Rule(), SessionTimeout: f.Session, Lease: validity(f.Lease), Begin: clock.Now()}
	v := &verdict{Result: config.Result()}
	f.begin(ctx)
	if f.Trials > 0 {
		f.try(ctx)
	} else {
		f.rage(ctx)
	}
	c.Healed = clock.Now()
	if err := f.settle(ctx, c); err != nil {
		return nil, err
	}
	c.End, c.Interrupted = clock.Now(), ctx.Err() != nil
	f.children().Stop()
	leaked, err := store.Leaked(context.WithoutCancel(ctx), seen, f.calm())
	if err != nil {
		return nil, err
	}
	f.children().Dismiss()
	f.end(v)
	left, err := store.Leaked(context.WithoutCancel(ctx), seen, f.calm())
	if err != nil {
		return nil, err
	}
	c.Leaked = max(leaked, left)
	c.Tallies = f.children().Tallies()
	for _, one := range f.clients {
		c.Deaths += one.deaths
	}
	f.fence.Died(f.faults.found.Deaths)
	c.Faults, c.Fence = f.faults.found, f.fence.Total()
	if c.Holds, err = evidence.ReadJournals(f.dir); err != nil {
		return nil, err
	}
	c.Judge(v.Result)
	v.languages(f.clients)
	v.renewals(f.clients, c.Holds, f.Lease, func(h evidence.Hold) bool { return f.faults.touched(h, f.Session) })
	return v, nil
}

// begin waits until each client was in a section. On a busy machine the programs take seconds to start.
func (f *fleet) begin(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, f.patience())
	defer cancel()
	for _, c := range f.clients {
		for f.fence.Begun(c.task.Process) == 0 && limit.Err() == nil {
			clock.Sleep(10*time.Millisecond, limit.Done())
		}
	}
}

// settle lets the clients run without faults until the lock was acquired again.
func (f *fleet) settle(ctx context.Context, c *judge.Case) error {
	limit := time.Now().Add(f.patience())
	for clock.Sleep(f.calm(), ctx.Done()); ctx.Err() == nil && time.Now().Before(limit); clock.Sleep(time.Second, ctx.Done()) {
		holds, err := evidence.ReadJournals(f.dir)
		if c.Holds = holds; err != nil || c.Resumed(1) {
			return err
		}
	}
	return nil
}

// end checks that the agents have no clients any more, and ends them.
func (f *fleet) end(v *verdict) {
	limit, cancel := context.WithTimeout(f.life, f.calm())
	defer cancel()
	for _, a := range f.agents {
		n, err := a.seats(limit)
		for err == nil && n > 0 && limit.Err() == nil {
			clock.Sleep(10*time.Millisecond, limit.Done())
			n, err = a.seats(f.life)
		}
		if err != nil {
			v.violated("an agent does not report its state: %v", err)
		} else if n > 0 {
			v.violated("an agent still has %d holds and waiting clients after all clients have ended", n)
		}
		if err := a.end(); err != nil {
			v.violated("%v", err)
		}
	}
	v.Other = append(v.Other, f.faults.broken...)
}

func (f *fleet) children() (all load.Children) {
	for _, c := range f.clients {
		if c.child != nil {
			all = append(all, c.child)
		}
	}
	return all
}

// validity is for how long a client may count on its hold if it gets no answer, as docs/agent.md says.
func validity(lease time.Duration) time.Duration { return lease * 2 / 3 }

// generator returns the random numbers of one kind of fault. They do not depend on those of the other kinds.
func (p plan) generator(kind uint64) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, kind)) }
