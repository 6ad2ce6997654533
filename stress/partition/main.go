// Partition holds the lease against a real ensemble that falls apart.
//
// Three servers run in network namespaces. One process holds the lock through a server
// that a fault separates from the other two, while the process still reaches it; a
// second one waits for the lock at the others. The loss has to be known to the first
// before the second acquires, on the clock that all processes of the machine share. If
// the second was first, the trial is a breach.
//
//	go run ./stress/partition                       # 20 trials of each fault
//	go run ./stress/partition -fault flap -trials 5
//
// It needs Linux, the ip command, and the right to make namespaces: root's or, where the
// kernel grants them to everybody, a user namespace. The networks have no way out, and
// the kernel takes them down with the process.
//
// Exit status: 0 without a breach, 1 with one or if a trial has no outcome, 2 for wrong
// usage, 69 where there is no ZooKeeper or no right to make namespaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const (
	exitPass        = 0
	exitBreach      = 1
	exitUsage       = 2
	exitUnavailable = 69 // EX_UNAVAILABLE
)

func main() {
	switch os.Getenv(roleEnv) {
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the labs
	fmt.Fprintf(stdout, "partition: seed %d, session timeout %v, tick %v\n", p.Seed, sessionTimeout, tick)
	outcomes, err := conduct(ctx, p, labs, stdout)
	if errors.Is(err, errUnavailable) && ctx.Err() == nil {
		fmt.Fprintln(stderr, "partition: not run:", err)
		return exitUnavailable
	}
	if err != nil {
		fmt.Fprintln(stderr, "partition:", err)
	}
	if passed := summarize(stdout, outcomes); err != nil || !passed {
		return exitBreach
	}
	return exitPass
}

// parseFlags reads the command line. Its error is already on stderr, with the usage.
func parseFlags(args []string, stderr io.Writer) (p plan, labs int, err error) {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.name
	}
	flags := flag.NewFlagSet("partition", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.Trials, "trials", 20, "trials of each fault")
	flags.Uint64Var(&p.Seed, "seed", rand.Uint64(), "of all random choices")
	only := flags.String("fault", strings.Join(names, ","), "which to try")
	flags.IntVar(&labs, "labs", 2, "ensembles at work at a time, three JVMs each")
	if err := flags.Parse(args); err != nil {
		return p, 0, err
	}
	p.Faults = strings.Split(*only, ",")
	for _, name := range p.Faults {
		if !slices.Contains(names, name) {
			err = errors.Join(err, fmt.Errorf("no fault %q: have %s", name, strings.Join(names, ", ")))
		}
	}
	if p.Trials < 1 || labs < 1 || flags.NArg() > 0 {
		err = errors.Join(err, errors.New("want at least one trial, one lab, and no arguments"))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
	}
	return p, labs, err
}
