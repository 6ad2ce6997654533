// Partition tests the lease on a real ensemble while faults separate its servers.
//
// There are three servers. One process holds the lock through one of them, and a fault separates this server from the other two. A
// second process waits for the lock at the other two. The first process has to know of the loss before the second one acquires the lock,
// on the clock that all processes of the machine share. If the second process acquires earlier, the trial is a breach.
//
//	go run ./stress/partition                       # 20 trials of each fault
//	go run ./stress/partition -fault flap -trials 5
//	go run ./stress/partition -store etcd
//	go run ./stress/partition -store redis
//
// For ZooKeeper, Partition needs Linux, the ip command, and the right to create network namespaces. The servers run in these namespaces.
// Root has this right; some kernels grant it to every user in a user namespace. The networks are not connected to any other network, and
// the kernel removes them when the process exits. Members of etcd reach one another through this program, which needs no special rights.
//
// PostgreSQL, MySQL and Redis have a single server here, which both processes use. A fault pauses the server, kills it and starts it again,
// or cuts it off from the holder. Another fault pauses the holder. For a paused holder, it counts until when it believed in its lock: even
// its first check after the pause must find the loss.
//
// Exit status: 0 if there is no breach, 1 for a breach or a trial without an outcome, 2 for wrong usage, 69 if there is no server or no
// right to create namespaces.
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

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

const (
	exitPass        = 0
	exitBreach      = 1
	exitUsage       = 2
	exitUnavailable = 69 // EX_UNAVAILABLE
)

func main() {
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // the trials cause losses and outages on purpose
	switch twin.Role() {
	case "lab":
		os.Exit(labMain())
	case "locker":
		os.Exit(lockerMain())
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	p, labs, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitPass
	}
	if err != nil {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once, without waiting for the labs
	fmt.Fprintf(stdout, "partition: %s, seed %d, session timeout %v\n", p.Store, p.Seed, sessionTimeout)
	outcomes, err := conduct(ctx, p, labs, stdout)
	if errors.Is(err, errUnavailable) && ctx.Err() == nil {
		fmt.Fprintln(stderr, "partition: not run:", err)
		return exitUnavailable
	}
	if err != nil {
		fmt.Fprintln(stderr, "partition:", err)
	}
	if passed := summarize(stdout, p.Faults, outcomes); err != nil || !passed {
		return exitBreach
	}
	return exitPass
}

// parseFlags reads the command line. If it returns an error, it has already printed the error and the usage to stderr.
func parseFlags(args []string, stderr io.Writer) (p plan, labs int, err error) {
	flags := flag.NewFlagSet("partition", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.Trials, "trials", 20, "trials of each fault")
	flags.Uint64Var(&p.Seed, "seed", rand.Uint64(), "of all random choices")
	flags.StringVar(&p.Store, "store", "zookeeper", strings.Join(store.Names(), "|"))
	only := flags.String("fault", "", "which to try, separated by commas (default: all): "+everyFault())
	flags.IntVar(&labs, "labs", 2, "ensembles at work at a time, of three servers each")
	if err := flags.Parse(args); err != nil {
		return p, 0, err
	}
	if site := siteOf(p.Store); site == nil {
		err = fmt.Errorf("no store %q: have %s", p.Store, strings.Join(store.Names(), ", "))
	} else {
		p.Faults, err = site.choose(*only)
	}
	if p.Trials < 1 || labs < 1 || flags.NArg() > 0 {
		err = errors.Join(err, errors.New("want at least one trial, one lab, and no arguments"))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return p, labs, err
}

// The method choose splits the list of faults. If the list is empty, choose returns all faults.
func (s *site) choose(list string) (faults []string, err error) {
	names := s.faultNames()
	if list == "" {
		return names, nil
	}
	faults = strings.Split(list, ",")
	for _, name := range faults {
		if !slices.Contains(names, name) {
			err = errors.Join(err, fmt.Errorf("no fault %q on %s: have %s", name, s.store.Title, strings.Join(names, ", ")))
		}
	}
	return faults, err
}

func everyFault() string {
	var all []string
	for _, s := range sites {
		all = append(all, s.store.Name+" has "+strings.Join(s.faultNames(), ", "))
	}
	return strings.Join(all, "; ")
}
