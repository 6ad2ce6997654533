// Package command implements cmd/tierlock, which works the same on each store. A [Store] has the parts that differ.
//
// A subcommand is a function that returns a [subcommand]: its name, its help and its flags in one place.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A subcommand is one verb of the command line.
type subcommand struct {
	name   string
	usage  string // what follows the name, such as "[-n] PATH -- COMMAND"
	about  string // half a line for the list of all
	help   string // what a person has to know, with examples
	hidden bool
	alone  bool   // it connects to nothing, and has no flags but its own and -version
	of     *Store // the first that has it, as a task; nil if all have
	flags  func(*flag.FlagSet)
	run    func(context.Context, *invocation) error // its error says with what status to exit; see exit.go
}

// subcommands returns all there are, in the order in which help lists them.
func (in *invocation) subcommands() []*subcommand {
	all := []*subcommand{
		runSubcommand(),
		lsSubcommand(),
		whoSubcommand(),
		watchSubcommand(),
		valueSubcommand(),
		revokeSubcommand(),
		breakSubcommand(),
		permitsSubcommand(),
		doctorSubcommand(),
		keepSubcommand(),
	}
	for _, s := range in.stores {
		for _, t := range s.Tasks {
			if !slices.ContainsFunc(all, func(sub *subcommand) bool { return sub.name == t.Name }) {
				all = append(all, t.subcommand(s))
			}
		}
	}
	return all
}

// An invocation is one run of the program.
type invocation struct {
	stores  []*Store
	address Address
	store   *Store        // of the address
	timeout time.Duration // for connecting
	output  string        // "text" or "json"
	version bool          // is asked for, and nothing else
	args    []string      // that are no flags, up to "--"
	command []string      // all that follows "--"
	before  []string      // the whole command line before the name of the subcommand, and after it
	after   []string
	stdout  io.Writer
	stderr  io.Writer
	flush   func() // returns when messages are written
}

// Main executes the command line on one of the stores, and returns the exit status.
func Main(stores []*Store, args []string, stdout, stderr io.Writer) int {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	in := newInvocation(stores, &output{stdout, end}, stderr)
	defer func() { in.flush() }()
	sub, err := in.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		in.help(sub)
		err = nil
	case err == nil && in.version:
		fmt.Fprintln(in.stdout, "tierlock", version())
	case err == nil:
		if sub, err = in.locate(sub); err == nil {
			err = sub.run(ctx, in)
		}
	}
	if unwritten := context.Cause(ctx); unwritten != nil && (err == nil || err.Error() == "" || errors.Is(err, unwritten)) {
		err = fail(exitInternal, "cannot print the output: %w", unwritten)
	}
	if err == nil {
		return exitOK
	}
	if err.Error() != "" {
		in.say("%v", err)
	}
	return status(err)
}

// locate finds the store of a subcommand that connects to one. It returns the subcommand as that store has it.
func (in *invocation) locate(sub *subcommand) (_ *subcommand, err error) {
	if sub.alone {
		return sub, nil
	}
	if in.store, err = in.address.find(in.stores); err != nil {
		return nil, usage(err)
	}
	if sub.of == nil || sub.of == in.store {
		return sub, nil
	}
	var names, examples []string
	for _, s := range in.stores {
		for _, t := range s.Tasks {
			switch {
			case t.Name != sub.name:
			case s == in.store:
				return t.subcommand(s), nil
			default:
				names, examples = append(names, s.Name), append(examples, s.Example)
			}
		}
	}
	return nil, usageError("%s is for %s, such as %s; the store is %s", sub.name, strings.Join(names, " or "), strings.Join(examples, ", "),
		in.store.Name)
}

// An output cancels the subcommand, with the error as the cause, when a write to it fails. Subcommands therefore need not check each
// write.
type output struct {
	io.Writer
	end context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.end(err)
	}
	return n, err
}

// version returns the version of the module from which this program was built, and that of Go.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	return info.Main.Version + " " + info.GoVersion
}

func newInvocation(stores []*Store, stdout, stderr io.Writer) *invocation {
	return &invocation{stores: stores, timeout: connectTimeout, output: "text", stdout: stdout, stderr: stderr, flush: func() {}}
}

// say prints a message of this process to stderr.
func (in *invocation) say(format string, args ...any) {
	fmt.Fprintf(in.stderr, "tierlock: "+format+"\n", args...)
}

// path returns the lock path, the only argument.
func (in *invocation) path() (string, error) {
	switch {
	case len(in.args) == 0:
		return "", usageError("the PATH of the lock is missing")
	case len(in.args) > 1:
		return "", usageError("%q comes after the PATH of the lock, %s; want one PATH", in.args[1], in.args[0])
	}
	return in.args[0], nil
}
