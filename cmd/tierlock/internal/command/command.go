// Package command implements cmd/tierlock, which works in the same way on each store. A [Store] has the parts that differ.
//
// Each subcommand has a function that returns its [subcommand]. The name, the help and the flags of a subcommand are therefore in one
// place.
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

// A subcommand is one command of the program, such as run or ls.
type subcommand struct {
	name   string
	usage  string // the arguments after the name, such as "[-n] PATH -- COMMAND"
	about  string // a short description for the list of all subcommands
	help   string // what a user has to know, with examples
	hidden bool
	alone  bool   // the subcommand connects to no store, and of the global flags it has only -version
	of     *Store // the first store that has it as a task; nil if all stores have it
	flags  func(*flag.FlagSet)
	run    func(context.Context, *invocation) error // the returned error determines the exit status; see exit.go
}

// The method subcommands returns all subcommands, in the order in which help lists them.
func (in *invocation) subcommands() []*subcommand {
	all := []*subcommand{
		runSubcommand(),
		lsSubcommand(),
		whoSubcommand(),
		watchSubcommand(),
		valueSubcommand(),
		agentSubcommand(),
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
	store   *Store        // the store of the address
	timeout time.Duration // the limit for connecting
	output  string        // "text" or "json"
	version bool          // only the version is requested
	args    []string      // the arguments that are no flags, up to "--"
	command []string      // all arguments after "--"
	before  []string      // the arguments before the name of the subcommand
	after   []string
	stdout  io.Writer
	stderr  io.Writer
	flush   func() // returns when all messages are written
}

// Main executes a command line for one of the stores. It returns the exit status.
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

// locate finds the store for a subcommand that connects to one. It returns the subcommand in the form that this store has.
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

// An output is a writer that cancels the subcommand when a write fails. The error is the cause. Therefore subcommands need not check each
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

// The function version returns the version of the module from which this program was built, and the version of Go.
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

// say prints a message of this process to standard error.
func (in *invocation) say(format string, args ...any) {
	fmt.Fprintf(in.stderr, "tierlock: "+format+"\n", args...)
}

// The method path returns the lock path, which is the only argument.
func (in *invocation) path() (string, error) {
	switch {
	case len(in.args) == 0:
		return "", usageError("the PATH of the lock is missing")
	case len(in.args) > 1:
		return "", usageError("%q is a second PATH after %s; want only one PATH", in.args[1], in.args[0])
	}
	return in.args[0], nil
}
