package command

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
)

// The type lsOptions has the flags of ls.
type lsOptions struct {
	all   bool
	limit int
}

func lsSubcommand() *subcommand {
	o := &lsOptions{limit: 10000}
	return &subcommand{
		name:  "ls",
		usage: "[-a] [-limit N] [PATH]",
		about: "list the locks below a path, with their holders and queues",
		help: `Lists the locks and semaphores at PATH and below it (default: /). A lock is listed while a process
holds it or waits for it, with tierlock or with another library.

  tierlock ls /jobs
  tierlock ls -o json

QUEUE counts the holder and the waiting processes; for a semaphore, only the waiting processes. NODE AGE
is the age of the holder's queue entry, not how long the lock has been held: the goroutines of a process
pass the lock to each other under one entry.
`,
		flags: o.flags,
		run:   o.run,
	}
}

func (o *lsOptions) flags(flags *flag.FlagSet) {
	flags.BoolVar(&o.all, "a", o.all, "also list idle paths (in ZooKeeper, only paths that tierlock created)")
	flags.IntVar(&o.limit, "limit", o.limit, "examine at most `N` paths (default 10000)")
}

func (o *lsOptions) run(ctx context.Context, in *invocation) error {
	path, err := in.pathOrRoot()
	if err != nil {
		return err
	}
	if o.limit < 1 {
		return usageError("-limit %d: want at least 1", o.limit)
	}
	return in.look(ctx, func(ctx context.Context, locks *Locks) error {
		list, err := locks.Desk.List(ctx, path, o.limit, o.all)
		switch {
		case err != nil:
			return err
		case in.output == "json":
			return writeJSON(in.stdout, list, "  ")
		}
		return writeList(in, list)
	})
}

func writeList(in *invocation, list *inspect.Listing) error {
	if len(list.Locks) == 0 {
		fmt.Fprintf(in.stderr, "no lock at %s or below it is held or has waiters\n", clean(list.Path))
	} else if err := writeLocks(in.stdout, list); err != nil {
		return err
	}
	if list.GracePeriod != nil {
		fmt.Fprintln(in.stderr, list.GracePeriod)
	}
	for _, path := range list.Unreadable {
		fmt.Fprintf(in.stderr, "no permission to list below %s\n", clean(path))
	}
	if !list.Complete {
		fmt.Fprintf(in.stderr, "stopped after %d paths; to see the other paths, use a larger -limit\n", list.Looked)
	}
	return nil
}

func writeLocks(w io.Writer, list *inspect.Listing) error {
	t := newTable(w, "LOCK", "QUEUE", "NODE AGE", "HOLDER")
	for _, l := range list.Locks {
		since, holder := "-", "-"
		switch {
		case l.Permits != nil:
			holder = l.Permits.String()
		case l.Holder != nil:
			since, holder = nodeAge(l.Holder), described(l.Holder)+more(l.Holders)
		case l.Queue > 0:
			holder = "none yet"
		}
		t.row(l.Path, strconv.Itoa(l.Queue), since, holder)
	}
	return t.end()
}

// more(n) returns a text with the number of holders besides the first one; n is the number of all holders.
func more(n int) string {
	if n <= 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-1)
}

// nodeAge returns the age of a node as text. If the age is not known, it returns "?".
func nodeAge(c *inspect.Contender) string {
	if !c.Aged() {
		return "?"
	}
	return age(c.Age())
}
