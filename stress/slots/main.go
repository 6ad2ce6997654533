// Slots runs the slots of one job in real processes, kills and stops these processes, and judges the runs.
//
// Three processes run package slots on one store, with a slot each second. Their clocks differ by up to five seconds. Every five seconds a
// process is killed with SIGKILL, and a new one takes its place. At every third of these times, the process that runs the slots is also
// stopped, for longer than its lease. The processes record their runs in a file that only flock(2) protects. The judge requires:
//
//   - A slot begins again only if its outcome was not recorded, and only with a higher attempt.
//   - No slot is missing between the first and the last slot. A run that was interrupted is retried.
//   - Tokens never go back, and no two processes have the same token.
//   - No run begins between the beginning of another run and the last check in which that run has found that it has the lock.
//   - At the end, the ledger agrees with the last run.
//
// For example:
//
//	go run ./stress/slots -store redis
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
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tierlock/tierlock/internal/second"
	"github.com/tierlock/tierlock/stress/internal/store"
	"github.com/tierlock/tierlock/stress/internal/twin"
)

const (
	exitPass     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNoServer = 69 // EX_UNAVAILABLE
)

// plan is the configuration of a run.
type plan struct {
	Store    *store.Store
	Duration time.Duration // how long processes are killed and stopped
	Pause    time.Duration // between two kills
	Interval time.Duration // between two slots
	Skew     time.Duration // the clocks of the processes differ by at most this time
	Session  time.Duration // the session timeout
}

func main() {
	second.Defaults.Logger = slog.New(slog.DiscardHandler) // the run causes losses on purpose
	if twin.Role() != "" {
		if err := beWorker(); err != nil {
			fmt.Fprintln(os.Stderr, "slots: a process:", err)
			os.Exit(exitFailed)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	p := plan{Store: store.ZooKeeper, Pause: 5 * time.Second, Interval: time.Second, Skew: 5 * time.Second, Session: 3 * time.Second}
	flags := flag.NewFlagSet("slots", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("store", strings.Join(store.Names(), "|")+" (default zookeeper)", func(name string) (err error) {
		p.Store, err = store.Named(name)
		return err
	})
	flags.DurationVar(&p.Duration, "duration", 2*time.Minute, "how long processes are killed and stopped")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitPass
	} else if err != nil || flags.NArg() > 0 {
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := p.run(ctx, stderr)
	switch {
	case errors.Is(err, store.ErrNoServer) && ctx.Err() == nil:
		fmt.Fprintln(stderr, "slots:", err)
		return exitNoServer
	case err != nil:
		fmt.Fprintln(stderr, "slots:", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%s: %v\n", p.Store.Name, v)
	if len(v.Violations) > 0 {
		return exitFailed
	}
	return exitPass
}
