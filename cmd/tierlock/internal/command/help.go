package command

import (
	"flag"
	"fmt"
	"strings"
)

const storeHelp = `
environment:
  TIERLOCK_STORE    the URL of the store, unless -store is given; only this variable may contain a password
  TIERLOCK_AUTH     credentials, unless -auth-file is given

stores:
`

const statusHelp = `
exit status:
  1   doctor found something; break deleted nothing; revoke found no holder
  64  the command line is wrong          74  the lock was lost (run)
  69  no server could be reached         75  the lock was not acquired (run)
  70  any other error

tierlock help SUBCOMMAND has the details and examples.
`

// help explains a subcommand. If sub is nil, it explains all subcommands.
func (in *invocation) help(sub *subcommand) {
	shared := newInvocation(in.stores, nil, nil).flags(nil)
	var text strings.Builder
	defer func() { fmt.Fprint(in.stdout, text.String()) }()
	if sub == nil {
		fmt.Fprint(&text, "Tierlock runs a command under a distributed lock, and shows the holders and queues of locks.\n\n")
		fmt.Fprint(&text, "usage: tierlock [flags] SUBCOMMAND [flags] …\n\nsubcommands:\n")
		for _, sub := range in.subcommands() {
			if !sub.hidden {
				fmt.Fprintf(&text, "  %-8s %s\n", sub.name, sub.about)
			}
		}
		fmt.Fprintf(&text, "\nflags, before or after the subcommand's name:\n%s", list(shared.FlagSet))
		fmt.Fprint(&text, storeHelp)
		for _, s := range in.stores {
			fmt.Fprintf(&text, "\n  %s: %s\n%s", s.Name, s.Example, s.About)
		}
		fmt.Fprint(&text, statusHelp)
		return
	}
	fmt.Fprintf(&text, "usage: %s\n\n%s", strings.TrimSpace("tierlock "+sub.name+" "+sub.usage), strings.TrimPrefix(sub.help, "\n"))
	for _, s := range in.stores {
		if note := s.Notes[sub.name]; note != "" {
			fmt.Fprintf(&text, "\nOn %s, %s\n", s.Name, strings.TrimSpace(note))
		}
	}
	if sub.flags != nil {
		own := flag.NewFlagSet("", flag.ContinueOnError)
		sub.flags(own)
		fmt.Fprintf(&text, "\nflags:\n%s", list(own))
	}
	if !sub.alone {
		fmt.Fprintf(&text, "\nflags of all subcommands:\n%s", list(shared.FlagSet))
	}
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
