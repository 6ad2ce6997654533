package command

import (
	"context"
	"errors"
	"flag"
	"time"
)

// runOptions are the flags of run.
type runOptions struct {
	try     bool
	wait    time.Duration
	code    int
	grace   time.Duration
	session time.Duration
	verbose bool
}

func runSubcommand() *subcommand {
	o := &runOptions{code: exitNotAcquired}
	return &subcommand{
		name:  "run",
		usage: "[-n | -w DURATION] [flags] PATH -- COMMAND [ARGUMENT…]",
		about: "run a command while holding a lock",
		help: `Waits for the lock at PATH, runs the command, and releases the lock when the command has ended.

  tierlock run /jobs/report -- ./report.sh
`,
		flags: o.flags,
		run:   o.run,
	}
}

func (o *runOptions) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.try, "n", o.try, "do not wait for the lock")
	flags.BoolVar(&o.verbose, "v", o.verbose, "say how long it waited, and for whom")
	duration(flags, &o.wait, "w", "`time` to wait for the lock at most (default: for ever)", true)
	duration(flags, &o.grace, "grace", "`time` from TERM to KILL when the lock is lost", false)
	duration(flags, &o.session, "session", "`time` of the session to ask for (default 15s)", true)
}

func (o *runOptions) run(context.Context, *invocation) error {
	return errors.New("run is not there yet")
}
