package command

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// plain is a store that tells where it would connect to.
func plain() *Store {
	at := ""
	return &Store{
		Program: "plainlock", Name: "Plain", Environment: "  PLAIN  is not used\n", Notes: map[string]string{"who": "plain, and nothing else."},
		Flags: func(flags *flag.FlagSet) { flags.StringVar(&at, "at", at, "`host`") },
		Check: func() error { return errors.New(at) },
		ValidatePath: func(path string) error {
			if path == "/wrong" {
				return errors.New("not like that")
			}
			return nil
		},
	}
}

// A command line that is wrong runs nothing, exits 64, and says what is wrong, where, and what helps.
func TestWrongCommandLines(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "no subcommand; plainlock help lists them"},
		{"-x run", "not defined: -x; plainlock help lists the flags"},
		{"rum /x", `no subcommand "rum"`},
		{"help rum", `no subcommand "rum"`},
		{"run -w 5 /x -- true", `"5" for flag -w: want a duration such as`},
		{"run -w 0s /x -- true", "too short"},
		{"run /x -grace -1s -- true", "too short"},
		{"run -q /x -- true", "not defined: -q; plainlock help run lists the flags"},
		{"run /wrong -- true", "not like that"},
		{"run /x -at nowhere -- " + os.Args[0], "nowhere"},
		{"-o xml run /x -- true", "want text or json"},
		{"run /x -o xml -- true", "want text or json"},
	} {
		var out, err bytes.Buffer
		need.Equal(t, "the status of plainlock "+c.line, Main(plain(), strings.Fields(c.line), &out, &err), exitUsage)
		if text := err.String(); !strings.HasPrefix(text, "plainlock: ") || !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("plainlock %s: says %q, want a line with %q", c.line, text, c.want)
		}
		need.Equal(t, "what plainlock "+c.line+" prints", out.String(), "")
	}
}

// Help is no error. All that is there is listed, and each subcommand explains itself with an example.
func TestHelp(t *testing.T) {
	ask := func(line string) string {
		var out, err bytes.Buffer
		need.Equal(t, "the status of plainlock "+line, Main(plain(), strings.Fields(line), &out, &err), exitOK)
		need.Equal(t, "plainlock "+line+" says", err.String(), "")
		return out.String()
	}
	all := ask("help")
	need.Has(t, "help", all, "lock on Plain,", "usage: plainlock [flags]", "-at host", "PLAIN  is not used", "plainlock help SUBCOMMAND")
	need.Has(t, "help who, with what is the store's", ask("help who"), "\nOn Plain, plain, and nothing else.\n")
	for _, line := range []string{"-h", "--help"} {
		need.Equal(t, "plainlock "+line+", beside plainlock help", ask(line), all)
	}
	for _, sub := range plain().subcommands() {
		need.That(t, "help does not list "+sub.name, sub.hidden || strings.Contains(all, "\n  "+sub.name+" "))
		text := ask("help " + sub.name)
		need.That(t, "help "+sub.name+" has no example", sub.hidden || strings.Contains(text, "\n  plainlock "+sub.name+" "))
		for _, line := range []string{sub.name + " -h", "-o json " + sub.name + " /x --help"} {
			need.Equal(t, "plainlock "+line+", beside plainlock help "+sub.name, ask(line), text)
		}
	}
}

// The version is told wherever it is asked for, and nothing is run.
func TestVersion(t *testing.T) {
	for _, line := range []string{"--version", "-version run /x -- true", "ls -at nowhere -version"} {
		var out, err bytes.Buffer
		if got := Main(plain(), strings.Fields(line), &out, &err); got != exitOK || err.Len() > 0 ||
			!regexp.MustCompile(`^plainlock \S+ go1\.\S+\n$`).MatchString(out.String()) {
			t.Errorf("plainlock %s: exits %d, prints %q, says %q; want its version", line, got, &out, &err)
		}
	}
}

// Flags that all subcommands share are taken anywhere before "--"; what follows that is left alone.
func TestFlagsAnywhere(t *testing.T) {
	for _, line := range []string{
		"-at a:1 -o json run /x -- c -o text -at b",
		"run -at a:1 -o json /x -- c -o text -at b",
		"run /x -at a:1 -o json -- c -o text -at b",
		"-at z:9 run -at a:1 /x -o json -- c -o text -at b",
	} {
		store := plain()
		in := newInvocation(store, nil, nil)
		sub, err := in.parse(strings.Fields(line))
		need.Must(t, fmt.Sprintf("%s: %v", line, err), err == nil && sub.name == "run")
		if store.Check().Error() != "a:1" || in.output != "json" || strings.Join(in.args, " ") != "/x" ||
			strings.Join(in.command, " ") != "c -o text -at b" {
			t.Errorf("%s: got %+v", line, in)
		}
	}
}
