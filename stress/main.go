// Stress makes many goroutines of several processes contend for a lock, and judges the lock.
//
// The judge does not trust the store. It detects sections that overlap, lost updates of a counter in a file, reads during which a write
// changed the counter, and fencing tokens that are lower than earlier ones. Sections are counted in memory that the processes share.
// Under -chaos a process may be killed in its section, so kernel file locks are used instead, one that readers share or one for each
// permit: a section whose lock is not free at once overlaps. It also measures throughput, waits, transfers, fairness between the
// processes, and the traffic with the servers. For a reader/writer lock it reports both sides separately, and for a semaphore how many
// permits were in use.
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
// Under -chaos a process that was stopped may still be in its section while another process has the lock. What counts then: holds known
// to be valid never overlap; a late holder's first check of the hold finds the loss; a fenced register in another process loses no
// update; and the history is one of a reentrant, fenced lock. What late holders would have done without a fence is counted and printed.
// Readers and writers, and requests for each number of permits, all have to make progress. Requests, answers and notifications are
// recorded and checked against a model of a store: is there an order in which it could have answered like this? With -trace the record is
// kept. Permits are recorded only with -trace, except on ZooKeeper.
//
// With -ensemble, PostgreSQL and Redis have a primary and standbys that take over when it is killed. One standby of PostgreSQL always has
// all acknowledged writes; for Redis perhaps none has. The same is required there: the locks promise it on servers that are set up like
// these. With postgres-advisory no connection is cut, because its locks end with their connection.
//
// Exit status: 0 for PASS, 1 for FAIL, 2 for wrong usage, 69 when there is no
// server.
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
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // losses and outages are brought about
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
	case errors.Is(err, errFailed): // and said so
		return exitViolation
	}
	fmt.Fprintln(stderr, "stress:", err)
	if errors.Is(err, store.ErrNoServer) && ctx.Err() == nil { // not when interrupted while it looked for one
		return exitNoServer
	}
	return exitViolation
}

var errFailed = errors.New("the verdict is FAIL")

// run runs what the command line asks for and writes the result.
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

// stress makes workers contend for the lock, on private servers if the command line names none. The end of ctx ends the measurement
// early; the data collected by then is judged.
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
