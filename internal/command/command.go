// Package command is what cmd/tierlock does.
//
// A subcommand is one function that returns a [subcommand]: its name, its help and its flags in
// one place. What is ZooKeeper's own is in zookeeper.go.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
)

// A subcommand is one verb of the command line.
type subcommand struct {
	name   string
	usage  string // what follows the name, such as "[-n] PATH -- COMMAND"
	about  string // half a line for the list of all
	help   string // what a person has to know, with examples
	hidden bool
	flags  func(*flag.FlagSet)
	run    func(context.Context, *invocation) error // its error says with what status to exit; see exit.go
}

// subcommands returns all there are, in the order in which help lists them.
func subcommands() []*subcommand {
	return []*subcommand{
		runSubcommand(),
		lsSubcommand(),
		whoSubcommand(),
		watchSubcommand(),
		revokeSubcommand(),
		breakSubcommand(),
		doctorSubcommand(),
		keepSubcommand(),
	}
}

// An invocation is what the command line asks for.
type invocation struct {
	zk      zooKeeper // how to connect
	output  string    // "text" or "json"
	args    []string  // that are no flags, up to "--"
	command []string  // all that follows "--"
	before  []string  // the whole command line before the name of the subcommand, and after it
	after   []string
	stdout  io.Writer
	stderr  io.Writer
}

// Main does what args ask for and returns the exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	in := &invocation{output: "text", stdout: stdout, stderr: stderr}
	sub, err := in.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		help(stdout, sub)
		return exitOK
	case err == nil:
		err = sub.run(context.Background(), in)
	}
	if err == nil {
		return exitOK
	}
	if err.Error() != "" {
		fmt.Fprintln(stderr, "tierlock:", err)
	}
	return status(err)
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
