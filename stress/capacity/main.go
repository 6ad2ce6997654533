// Capacity counts what locks cost a ZooKeeper server, and compares the counts with the formulas of docs/capacity.md.
//
// On a private server, processes queue for the same locks, wait, and acquire the locks in strict order. With -private, each process has
// locks of its own. The server itself counts (mntr): requests received, answers and events sent, transactions, znodes, and watches.
// These counts are the same on a busy machine, as long as no session is lost.
//
//	go run ./stress/capacity                          # 64 processes, 1,000 locks: two and a half minutes
//	go run ./stress/capacity -private -goroutines 1   # 64 × 1,000 locks
//	go run ./stress/capacity -procs 3 -locks 10 -session 8s
//
// Exit status: 0 for success, 1 if something failed, 2 for wrong usage, 69 if there is no server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/test/zkserver"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

const (
	exitFailed   = 1
	exitUsage    = 2
	exitNoServer = 69 // EX_UNAVAILABLE
)

// plan is the configuration of a measurement.
type plan struct {
	Procs      int
	Locks      int // number of locks, of all processes together; with Private, of each process
	Goroutines int // number of goroutines of each process for each of its locks
	Private    bool
	Session    time.Duration
	Turns      time.Duration // how long the processes acquire locks in turn
}

func main() {
	if twin.Role() != "" {
		if err := beMember(); err != nil {
			fmt.Fprintln(os.Stderr, "capacity: a process:", err)
			os.Exit(exitFailed)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	p, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rows, err := p.measure(ctx)
	if len(rows) > 0 {
		printTable(stdout, p, rows)
	}
	if err != nil {
		fmt.Fprintln(stderr, "capacity:", err)
		if errors.Is(err, zkserver.ErrNotFound) {
			return exitNoServer
		}
		return exitFailed
	}
	return 0
}

// parseFlags reads the command line. If it returns an error, it has already printed the error to stderr.
func parseFlags(args []string, stderr io.Writer) (p plan, err error) {
	flags := flag.NewFlagSet("capacity", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&p.Procs, "procs", 64, "processes")
	flags.IntVar(&p.Locks, "locks", 1000, "locks")
	flags.IntVar(&p.Goroutines, "goroutines", 2, "goroutines per process and lock")
	flags.BoolVar(&p.Private, "private", false, "each process has locks of its own, as many")
	flags.DurationVar(&p.Session, "session", 30*time.Second, "session timeout T, up to one minute")
	flags.DurationVar(&p.Turns, "turns", 10*time.Second, "how long to take turns")
	if err := flags.Parse(args); err != nil {
		return p, err
	}
	if p.Procs < 2 || p.Locks < 1 || p.Goroutines < 1 || p.Session < 4*time.Second || p.Session > time.Minute || flags.NArg() > 0 {
		err = errors.New("want two processes, one lock, one goroutine, 4 s to 1 m of T, and no arguments")
		fmt.Fprintln(stderr, err)
	}
	return p, err
}
