package command

import (
	"context"
	"flag"
	"fmt"
)

// The type permitsOptions has the flags of permits.
type permitsOptions struct{ set int }

func permitsSubcommand() *subcommand {
	o := new(permitsOptions)
	return &subcommand{
		name:  "permits",
		usage: "-set N PATH",
		about: "set how many permits a semaphore has",
		help: `Sets the number of permits of the semaphore at PATH to N. From now on all processes use this number, and
not the number in their programs. tierlock who shows the number.

  tierlock permits -set 20 /db/connections

If the number becomes smaller, holders keep their permits. No more permits are granted until fewer than N
are taken. A waiter that wants more than N permits gets an error. A larger number admits waiters at
once.

The number stays stored while the semaphore is idle; on ZooKeeper, until the server removes the idle
path. Curator's clients do not read the stored number: each uses the number in its own program.
`,
		flags: o.flags,
		run:   o.run,
	}
}

func (o *permitsOptions) flags(flags *flag.FlagSet) {
	flags.IntVar(&o.set, "set", o.set, "`number` of permits, 1 or more")
}

// A permitsSet is the JSON output of permits.
type permitsSet struct {
	Path    string `json:"path"`
	Permits int    `json:"permits"`
}

func (o *permitsOptions) run(ctx context.Context, in *invocation) error {
	path, err := in.lockPath()
	if err != nil {
		return err
	}
	if o.set < 1 {
		return usageError("permits needs -set N, where N is 1 or more")
	}
	set := func(ctx context.Context, locks *Locks) error {
		return locks.Semaphore(path, o.set).SetPermits(ctx, o.set)
	}
	if err := in.look(ctx, set); err != nil {
		return err
	}
	if in.output == "json" {
		return writeJSON(in.stdout, permitsSet{path, o.set}, "  ")
	}
	_, err = fmt.Fprintf(in.stdout, "%s has %d permits\n", clean(path), o.set)
	return err
}
