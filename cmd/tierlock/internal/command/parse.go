package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse parses the command line. Global flags may be before or after the name of the subcommand, and all flags may be before or after other
// arguments. Arguments after "--" are left unchanged. If the error is flag.ErrHelp, parse returns the subcommand that help has to explain,
// or nil for all subcommands.
func (in *invocation) parse(args []string) (*subcommand, error) {
	line := args
	if i := slices.Index(args, "--"); i >= 0 {
		args, in.command = args[:i], args[i+1:]
	}
	ours := len(args)
	shared := in.flags(nil)
	args, err := shared.parse(args)
	if err != nil {
		return nil, err
	}
	if in.version {
		return nil, nil
	}
	if len(args) == 0 {
		return nil, usageError("no subcommand; tierlock help lists them")
	}
	at := ours - len(args)
	in.before, in.after = line[:at], line[at+1:]
	name, args := args[0], args[1:]
	if name == "help" {
		return in.explained(args)
	}
	sub := in.find(name)
	if sub == nil {
		return nil, usageError("there is no subcommand %q; tierlock help lists them", name)
	}
	if sub.alone && shared.NFlag() > 0 {
		return nil, usageError("%s needs no store, and takes no flags before its name; tierlock help %[1]s lists the flags after its name", name)
	}
	for flags := in.flags(sub); ; {
		args, err = flags.parse(args)
		if err != nil || len(args) == 0 {
			return sub, err
		}
		in.args, args = append(in.args, args[0]), args[1:]
	}
}

// The method explained returns the subcommand for which help is requested.
func (in *invocation) explained(args []string) (*subcommand, error) {
	if len(args) == 0 {
		return nil, flag.ErrHelp
	}
	if sub := in.find(args[0]); sub != nil {
		return sub, flag.ErrHelp
	}
	return nil, usageError("help: there is no subcommand %q; tierlock help lists them", args[0])
}

func (in *invocation) find(name string) *subcommand {
	for _, sub := range in.subcommands() {
		if sub.name == name {
			return sub
		}
	}
	return nil
}

// The method flags returns the flags of a subcommand. If the subcommand connects to a store, these include the global flags. The defaults
// of the flags are the values that were parsed before.
func (in *invocation) flags(sub *subcommand) flagSet {
	if sub == nil {
		sub = &subcommand{}
	}
	flags := flag.NewFlagSet(sub.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // Main prints the error
	flags.BoolVar(&in.version, "version", in.version, "print the version, and do nothing else")
	if sub.flags != nil {
		sub.flags(flags)
	}
	if !sub.alone {
		in.toConnect(flags)
	}
	return flagSet{flags}
}

// toConnect adds the flags of subcommands that connect to a store.
func (in *invocation) toConnect(flags *flag.FlagSet) {
	in.address.flags(flags)
	duration(flags, &in.timeout, "connect-timeout", "`time` after which to give up connecting (default 10s)", true)
	flags.Func("o", "`form` of the output: text or json (default text)", func(form string) error {
		if form != "text" && form != "json" {
			return errors.New("want text or json")
		}
		in.output = form
		return nil
	})
}

type flagSet struct{ *flag.FlagSet }

// parse parses flags until the first argument that is no flag, and returns the remaining arguments.
func (f flagSet) parse(args []string) ([]string, error) {
	err := f.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return f.Args(), err
	}
	advice := strings.TrimSpace("tierlock help " + f.Name())
	return nil, usageError("%w; %s lists the flags", err, advice)
}

// The function number adds a flag whose value is a number of at least one.
func number(flags *flag.FlagSet, n *int, name, usage string) {
	flags.Func(name, usage, func(text string) error {
		value, err := strconv.Atoi(text)
		if err != nil || value < 1 {
			return errors.New("want a number of 1 or more")
		}
		*n = value
		return nil
	})
}

// The function duration adds a flag whose value is a duration. The value must not be negative. If positive is true, it must not be zero
// either.
func duration(flags *flag.FlagSet, d *time.Duration, name, usage string, positive bool) {
	flags.Func(name, usage, func(text string) error {
		value, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return errors.New("want a duration such as 500ms, 30s or 2m")
		case value < 0 || positive && value == 0:
			return fmt.Errorf("%v is too short", value)
		}
		*d = value
		return nil
	})
}
