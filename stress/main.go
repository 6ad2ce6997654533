// Stress lets many goroutines of several processes contend for a lock, and judges the lock.
//
// The judge does not trust the store. It detects four faults: sections that overlap, lost updates of a counter in a file, reads during
// which a write changed the counter, and fencing tokens that are lower than earlier ones. Sections are counted in memory that the
// processes share. With -chaos, a process may be killed in its section. Therefore each section then takes kernel file locks instead:
// readers share one, and a semaphore has one for each permit. A section whose file lock is not free at once overlaps another one. Stress
// also measures throughput, waits, transfers, the fairness between the processes, and the traffic with the servers. For a reader/writer
// lock it reports readers and writers separately. For a semaphore it reports how many permits were in use.
//
//	go run ./stress                            # on a private server
//	go run ./stress -zk host:2181/some/path    # on yours
//	go run ./stress -store etcd                # on etcd, on a private server
//	go run ./stress -store redis               # on Redis; so postgres, postgres-advisory, and mysql
//	go run ./stress -baseline -cs 1ms          # beside the client library's own lock
//	go run ./stress -store redis -baseline=redsync
//	go run ./stress -lock rw -reads 0.99       # readers and writers
//	go run ./stress -lock semaphore -permits 3 # permits
//	go run ./stress -rtt 20ms                  # with the servers that far away
//	go run ./stress -chaos -ensemble 3         # with kill -9, stops and cuts
//	go run ./stress -html report.html          # with charts of the run
//	go run ./stress -bench docs                # all figures that tierlock is held against
//
// With -chaos, a process that was paused may still be in its section while another process has the lock. Four things are required then.
// Holds that are known to be valid never overlap. The first check of a late holder finds the loss. A fenced register in another process
// loses no update. And the history is one of a reentrant, fenced lock. What late holders would have done without a fence is counted and
// printed. All readers, all writers, and requests for each number of permits have to make progress. Requests, answers and notifications are
// recorded and checked against a model of a store: is there an order of execution in which a store could have answered like this? With
// -trace the record is kept.
//
// With -ensemble, PostgreSQL and Redis have a primary and standbys. A standby takes over when the primary is killed. One standby of
// PostgreSQL always has all acknowledged writes. On Redis, perhaps no standby has them all. The same is required as on a single server,
// because the locks promise it on servers that are set up like these. With postgres-advisory no connection is cut, because its locks end
// with their connection.
//
// Exit status: 0 for PASS, 1 for FAIL, 2 for wrong usage, 69 when there is no server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/stress/internal/bench"
	"github.com/tierlock/tierlock/stress/internal/chaos"
	"github.com/tierlock/tierlock/stress/internal/load"
	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/report/page"
	"github.com/tierlock/tierlock/stress/internal/store"
)

const (
	exitPass      = 0
	exitViolation = 1
	exitUsage     = 2
	exitNoServer  = 69 // EX_UNAVAILABLE
)

func main() {
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // the runs cause losses and outages on purpose
	load.BeWorker()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitPass
	}
	if err != nil {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the verdict
	if c.Bench != "" {
		err = bench.Run(ctx, c.Config, c.Bench, stdout, stderr)
	} else {
		err = c.run(ctx, stdout, stderr)
	}
	switch {
	case err == nil:
		return exitPass
	case errors.Is(err, errFailed): // the result says so already
		return exitViolation
	}
	fmt.Fprintln(stderr, "stress:", err)
	if errors.Is(err, store.ErrNoServer) && ctx.Err() == nil { // an interrupted search for a server has the same error
		return exitNoServer
	}
	return exitViolation
}

var errFailed = errors.New("the verdict is FAIL")

// The method run does what the command line asks for, and writes the result.
func (c command) run(ctx context.Context, stdout, stderr io.Writer) error {
	result, err := c.stress(ctx, stderr)
	if err != nil {
		return err
	}
	err = result.Write(stdout, c.JSON)
	if c.HTML != "" {
		err = errors.Join(err, page.OfRun(result).WriteFile(c.HTML))
	}
	if err == nil && result.Verdict != "PASS" {
		return errFailed
	}
	return err
}

// stress runs workers that contend for the lock. If the command line names no servers, it starts private ones. If ctx ends, the
// measurement ends early, and the data that was collected by then is judged.
func (c command) stress(ctx context.Context, stderr io.Writer) (*report.Result, error) {
	if len(c.Servers) > 0 {
		c.Release = store.ZooKeeperAt(c.Servers)
		return load.Run(ctx, c.Config)
	}
	cluster, err := c.Store.Start(ctx, c.Shape())
	if err != nil {
		return nil, err
	}
	defer cluster.Stop()
	c.Use(cluster)
	if !c.Chaos {
		return load.Run(ctx, c.Config)
	}
	return chaos.Run(ctx, c.Config, cluster, c.drawing(), stderr)
}
