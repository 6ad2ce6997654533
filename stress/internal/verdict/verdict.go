// Package verdict tests tierlock and its peers under the same faults, and writes docs/verdicts.md.
package verdict

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

// Main is the main function of this program, and of each process that the program starts. others are additional subjects.
func Main(others ...Subject) int {
	subjects = slices.Concat(peers, others, own)
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // the trials cause losses and outages on purpose
	if twin.Role() == "party" {
		return partyMain()
	}
	load.BeWorker()
	return run(os.Args[1:], os.Stdout, os.Stderr)
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("verdicts", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "cells, such as redsync/cut, separated by commas; a subject or /fault names several; or jepsen")
	trials := flags.Int("trials", 4, "of each cell")
	number := flags.Int("trial", 0, "the only one to run, from 1 (default: all)")
	seed := flags.Uint64("seed", 1, "of all random choices")
	parallel := flags.Int("parallel", 10, "trials at a time; they mostly wait")
	to := flags.String("to", "", "file for the document (default: none)")
	if flags.Parse(args) != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "tierlock-verdicts-")
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	found, absent, err := foreign(dir)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	subjects = slices.Insert(subjects, 1, found...) // next to zk.Lock, because they use ZooKeeper, too
	r := &findings{where: report.Machine(), load: machineLoad(), seed: *seed, trials: *trials, absent: absent}
	r.conduct(ctx, choose(*only), *number, *parallel, stdout)
	if *only == "" || *only == "jepsen" {
		r.workloads(ctx, stdout, stderr)
	}
	if ctx.Err() != nil {
		return 1
	}
	for _, o := range r.outcomes {
		if o.Error != "" || o.bad() && strings.HasPrefix(o.Subject, ourName) {
			fmt.Fprintln(stderr, o)
			r.failed = true
		}
	}
	if *to != "" {
		if err := os.WriteFile(*to, []byte(r.document()), 0o644); err != nil { //nolint:gosec // a document is for everybody
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if r.failed {
		return 1
	}
	return 0
}

// The method conduct runs the trials of the given cells. If only is not 0, it runs just the trial with that number in each cell.
func (r *findings) conduct(ctx context.Context, cells []cell, only, parallel int, stdout io.Writer) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for n := 1; n <= r.trials; n++ {
		for _, c := range cells {
			if only != 0 && n != only || ctx.Err() != nil {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				o := try(ctx, c.subject, c.fault, n, r.seed)
				mu.Lock()
				defer mu.Unlock()
				r.outcomes = append(r.outcomes, o)
				fmt.Fprintln(stdout, o)
			})
		}
	}
	all.Wait()
}
