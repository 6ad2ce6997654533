package command

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

const generalHelp = `Tierlock runs a command under a distributed lock on ZooKeeper, and shows who holds
locks and who waits for them.

usage: tierlock [flags] SUBCOMMAND [flags] …

subcommands:
`

const statusHelp = `
environment:
  TIERLOCK_ZK       the servers, if there is no -zk
  TIERLOCK_AUTH     credentials, if there is no -auth-file: lines of scheme:credentials,
                    such as digest:user:password

exit status:
  1   doctor found something; break deleted nothing; revoke asked nobody
  64  the command line is wrong          74  the lock was lost (run)
  69  no server could be reached         75  the lock was not acquired (run)
  70  anything else

tierlock help SUBCOMMAND has the details and examples.
`

// help explains a subcommand, or all if it is nil.
func help(w io.Writer, sub *subcommand) {
	shared := (&invocation{}).flags("", nil)
	if sub == nil {
		fmt.Fprint(w, generalHelp)
		for _, sub := range subcommands() {
			if !sub.hidden {
				fmt.Fprintf(w, "  %-8s %s\n", sub.name, sub.about)
			}
		}
		fmt.Fprintf(w, "\nflags, before or after the subcommand's name:\n%s%s", list(shared.FlagSet), statusHelp)
		return
	}
	fmt.Fprintf(w, "usage: tierlock %s %s\n\n%s", sub.name, sub.usage, strings.TrimPrefix(sub.help, "\n"))
	if sub.flags != nil {
		own := flag.NewFlagSet("", flag.ContinueOnError)
		sub.flags(own)
		fmt.Fprintf(w, "\nflags:\n%s", list(own))
	}
	fmt.Fprintf(w, "\nflags of all subcommands:\n%s", list(shared.FlagSet))
}

// list returns one line for each flag.
func list(flags *flag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  %-23s %s\n", strings.TrimSpace("-"+f.Name+" "+value), usage)
	})
	return b.String()
}
