package command

import (
	"flag"
	"fmt"
	"strings"
)

const statusHelp = `
exit status:
  1   doctor found something; break deleted nothing; revoke asked nobody
  64  the command line is wrong          74  the lock was lost (run)
  69  no server could be reached         75  the lock was not acquired (run)
  70  anything else

tierlock help SUBCOMMAND has the details and examples.
`

// help explains a subcommand, or all if it is nil.
func (in *invocation) help(sub *subcommand) {
	shared := newInvocation(in.store, nil, nil).flags(nil)
	var text strings.Builder
	defer func() { fmt.Fprint(in.stdout, in.named(text.String())) }()
	if sub == nil {
		fmt.Fprintf(&text, "Tierlock runs a command under a distributed lock on %s, and shows who holds\nlocks and who waits for them.\n\n",
			in.store.Name)
		fmt.Fprint(&text, "usage: tierlock [flags] SUBCOMMAND [flags] …\n\nsubcommands:\n")
		for _, sub := range in.store.subcommands() {
			if !sub.hidden {
				fmt.Fprintf(&text, "  %-8s %s\n", sub.name, sub.about)
			}
		}
		fmt.Fprintf(&text, "\nflags, before or after the subcommand's name:\n%s", list(shared.FlagSet))
		fmt.Fprintf(&text, "\nenvironment:\n%s%s", in.store.Environment, statusHelp)
		return
	}
	fmt.Fprintf(&text, "usage: %s\n\n%s", strings.TrimSpace("tierlock "+sub.name+" "+sub.usage), strings.TrimPrefix(sub.help, "\n"))
	if note := in.store.Notes[sub.name]; note != "" {
		fmt.Fprintf(&text, "\nOn %s, %s\n", in.store.Name, strings.TrimSpace(note))
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

// named has a text about the command call it by its name, where it is written "tierlock" before a
// subcommand or a flag. Elsewhere that is the library.
func (in *invocation) named(text string) string {
	var pairs []string
	for _, after := range []string{"help", "SUBCOMMAND", "[flags]"} {
		pairs = append(pairs, "tierlock "+after, in.store.Program+" "+after)
	}
	for _, sub := range in.store.subcommands() {
		pairs = append(pairs, "tierlock "+sub.name, in.store.Program+" "+sub.name)
	}
	return strings.NewReplacer(pairs...).Replace(text)
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
