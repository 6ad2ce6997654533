// Agents runs "tierlock agent" in real processes, kills and stops agents and clients, and judges what their clients have seen.
//
// Three agents, one for each host that a run imitates, serve one lock of one store. Each has six clients in processes of their own: two in
// Go, two in Python and two in Node. All clients contend for the lock. Their sections last a few milliseconds, and some outlast the lease.
// Every few seconds a client or an agent is killed with SIGKILL, or stopped with SIGSTOP for half a lease to two leases, or an agent is cut
// off from the store. Half of the time, a client that is hit is in its section. The judge is that of stress -chaos, and it trusts neither
// the agents nor the store. It requires:
//
//   - Holds that are known to be valid never overlap, on one host or on two. Each section takes a file lock of the kernel. If that lock is
//     not free at once, a late holder must still be in its section.
//   - The first check of a late holder finds the loss, by the clock of the client. No release succeeds after a loss was found.
//   - Clients in each language renew their holds: of four or more long sections without a fault, one keeps the lock to its end.
//   - Tokens never go back, and only clients of one agent have the same token. A register that checks tokens loses no update, although
//     half of the late holders write without a check.
//   - The lock is acquired again after each fault, and by clients in each language.
//   - When the clients have ended, their agents have no hold and no waiting client, and the store has no contender.
//   - No agent or client ends by itself. Each agent ends with status 0 when it is asked to, and removes its socket.
//
// With -trials N there are no random faults. Instead there are N trials of each fault, one after the other. A trial hits a client in its
// section, or the agent of that client. A client is killed, or stopped for longer than its lease. An agent is killed, or stopped or cut off
// from the store for longer than its session and the lease. A trial ends when the victim, or a client of that agent, is in a section again.
// A trial is repeated if the client had left its section before its agent was hit.
//
// For example:
//
//	go run ./stress/agents -store redis -for 1m
//	go run ./stress/agents -store redis -trials 20
//
// Clients in Python and Node need python3, node and the sources of this repository. If one of them is missing, the run fails. With
// -languages go all clients are in Go, which the verdict says.
//
// Exit status: 0 for PASS, 1 for FAIL, 2 for wrong usage, 69 if there is no server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/store"
)

const (
	exitPass     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoServer = 69 // EX_UNAVAILABLE
)

// plan is the configuration of a run.
type plan struct {
	Store     *store.Store
	Agents    int
	Clients   int      // of each agent
	Languages []string // of the clients of each agent, in turn
	Trials    int      // of each fault; 0: faults are random
	Faults    []string // of the trials
	Duration  time.Duration
	Session   time.Duration // the session timeout of the agents
	Lease     time.Duration // after which an agent ends a hold that its client does not renew
	Section   time.Duration // the mean
	Pause     time.Duration // between two faults of agents, at most: while the session of a killed agent lasts, the lock may be blocked
	Seed      uint64
	Lock      string // a kind of lock of store.Agent
	Program   string // the command tierlock; "": it is built
}

func main() {
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // the run causes losses on purpose
	load.BeWorker()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func newPlan() plan {
	// Private servers of ZooKeeper grant no longer session than this one.
	return plan{
		Store: store.ZooKeeper, Agents: 3, Clients: 6, Session: 3 * time.Second, Lease: time.Second, Section: 3 * time.Millisecond,
		Pause: 9 * time.Second, Lock: "mutex", Languages: languages, Faults: tried,
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	p := newPlan()
	flags := flag.NewFlagSet("agents", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("store", strings.Join(served(), "|")+" (default zookeeper)", func(name string) (err error) {
		p.Store, err = store.Named(name)
		if err == nil && p.Store.URL == nil {
			err = fmt.Errorf("agents do not serve the locks of %s", name)
		}
		return err
	})
	flags.IntVar(&p.Agents, "agents", p.Agents, "number of agents")
	flags.IntVar(&p.Clients, "clients", p.Clients, "number of clients of each agent")
	flags.Func("languages", "of the clients, with commas (default "+strings.Join(languages, ",")+")", func(list string) error {
		p.Languages = strings.Split(list, ",")
		for _, language := range p.Languages {
			if !slices.Contains(languages, language) {
				return fmt.Errorf("there are no clients in %q", language)
			}
		}
		return nil
	})
	flags.IntVar(&p.Trials, "trials", 0, "number of trials of each fault, one after the other, instead of random faults")
	flags.DurationVar(&p.Duration, "for", 5*time.Minute, "how long processes are killed and stopped")
	flags.DurationVar(&p.Session, "session", p.Session, "session timeout of the agents")
	flags.DurationVar(&p.Lease, "lease", p.Lease, "time after which a hold ends that is not renewed")
	flags.Uint64Var(&p.Seed, "seed", rand.Uint64(), "seed of the faults (default random)")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitPass
	} else if err != nil || flags.NArg() > 0 || p.Agents < 1 || p.Clients < 1 || p.Trials < 0 {
		return exitUsage
	} else if p.Clients < len(p.Languages) {
		fmt.Fprintln(stderr, "agents: -clients is too low for one client in each language")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := p.run(ctx, stderr)
	switch {
	case errors.Is(err, store.ErrNoServer) && ctx.Err() == nil:
		fmt.Fprintln(stderr, "agents:", err)
		return exitNoServer
	case err != nil:
		fmt.Fprintln(stderr, "agents:", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%s: %v\n", p.Store.Name, v)
	if len(v.violations()) > 0 {
		return exitFailed
	}
	return exitPass
}

// served returns the names of the stores whose locks an agent can serve.
func served() (names []string) {
	for _, name := range store.Names() {
		if s, _ := store.Named(name); s.URL != nil {
			names = append(names, name)
		}
	}
	return names
}
