package command

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

// plain returns two stores. One prints the address to which it would connect. The other has a subcommand of its own and no TLS.
func plain() []*Store {
	return []*Store{{
		Name: "Plain", Schemes: []string{"plain"}, Example: "plain://host:1", About: "    PLAIN  is not used\n", Auth: "a word",
		Notes: map[string]string{"who": "plain, and nothing else."},
		Check: func(a *Address) error { return errors.New(a.Servers) },
		ValidatePath: func(path string) error {
			if path == "/wrong" {
				return errors.New("not like that")
			}
			return nil
		},
	}, {
		Name: "Odd", Schemes: []string{"odd", "even"}, Example: "odd://host:2", Auth: "a number", NoTLS: "it has its own",
		Check:        func(a *Address) error { return fmt.Errorf("cannot read %q", a.URL) },
		ValidatePath: func(string) error { return nil },
		Tasks:        []Task{{Name: "paint", About: "paint it", Help: "\n  tierlock paint \n"}},
	}}
}

// With a wrong command line, nothing is run and the exit status is 64. The message says what is wrong, and how to correct it.
func TestWrongCommandLines(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "no subcommand; tierlock help lists them"},
		{"-x run", "not defined: -x; tierlock help lists the flags"},
		{"rum /x", `no subcommand "rum"`},
		{"help rum", `no subcommand "rum"`},
		{"run -w 5 /x -- true", `"5" for flag -w: want a duration such as`},
		{"run -w 0s /x -- true", "too short"},
		{"run /x -grace -1s -- true", "too short"},
		{"run -q /x -- true", "not defined: -q; tierlock help run lists the flags"},
		{"ls", "no store; give -store URL or set TIERLOCK_STORE: plain://host:1, odd://host:2"},
		{"-store host:1 ls", "-store has no scheme; want plain://host:1, odd://host:2"},
		{"ls -store http://host:1", `-store has the scheme "http", which belongs to no store; want plain://host:1, odd://host:2`},
		{"ls -store plain://nowhere", "nowhere"},
		{"ls -store odd://host -tls-ca x", "the -tls flags are not for Odd; it has its own"},
		{"-o xml run /x -- true", "want text or json"},
		{"run /x -o xml -- true", "want text or json"},
	} {
		t.Setenv(storeVar, "")
		var out, err bytes.Buffer
		need.Equal(t, "the status of tierlock "+c.line, Main(plain(), strings.Fields(c.line), &out, &err), exitUsage)
		if text := err.String(); !strings.HasPrefix(text, "tierlock: ") || !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("tierlock %s: says %q, want a line with %q", c.line, text, c.want)
		}
		need.Equal(t, "the output of tierlock "+c.line, out.String(), "")
	}
}

// Help is not an error. It lists all subcommands, and the help of each subcommand has an example.
func TestHelp(t *testing.T) {
	ask := func(line string) string {
		var out, err bytes.Buffer
		need.Equal(t, "the status of tierlock "+line, Main(plain(), strings.Fields(line), &out, &err), exitOK)
		need.Equal(t, "tierlock "+line+" says", err.String(), "")
		return out.String()
	}
	all := ask("help")
	need.Has(t, "help", all, "a distributed lock,", "usage: tierlock [flags]", "-store URL",
		"Plain: plain://host:1\n    PLAIN  is not used", "odd://host:2", "tierlock help SUBCOMMAND")
	need.Has(t, "help who, with the text of the store", ask("help who"), "\nOn Plain, plain, and nothing else.\n")
	for _, line := range []string{"-h", "--help"} {
		need.Equal(t, "tierlock "+line+", beside tierlock help", ask(line), all)
	}
	for _, sub := range newInvocation(plain(), nil, nil).subcommands() {
		need.That(t, "help does not list "+sub.name, sub.hidden || strings.Contains(all, "\n  "+sub.name+" "))
		text := ask("help " + sub.name)
		need.That(t, "help "+sub.name+" has no example", sub.hidden || strings.Contains(text, "\n  tierlock "+sub.name+" "))
		for _, line := range []string{sub.name + " -h", "-o json " + sub.name + " /x --help"} {
			need.Equal(t, "tierlock "+line+", beside tierlock help "+sub.name, ask(line), text)
		}
	}
}

// -version prints the version wherever it is on the command line, and nothing is run.
func TestVersion(t *testing.T) {
	for _, line := range []string{"--version", "-version run /x -- true", "ls -store nowhere -version"} {
		var out, err bytes.Buffer
		if got := Main(plain(), strings.Fields(line), &out, &err); got != exitOK || err.Len() > 0 ||
			!regexp.MustCompile(`^tierlock \S+ go1\.\S+\n$`).MatchString(out.String()) {
			t.Errorf("tierlock %s: exits %d, prints %q, says %q; want its version", line, got, &out, &err)
		}
	}
}

// Global flags may be anywhere before "--". Everything after "--" is left unchanged.
func TestFlagsAnywhere(t *testing.T) {
	for _, line := range []string{
		"-store plain://a:1 -o json run /x -- c -o text -store b",
		"run -store plain://a:1 -o json /x -- c -o text -store b",
		"run /x -store plain://a:1 -o json -- c -o text -store b",
		"-store plain://z:9 run -store plain://a:1 /x -o json -- c -o text -store b",
	} {
		in := newInvocation(plain(), nil, nil)
		sub, err := in.parse(strings.Fields(line))
		need.Must(t, fmt.Sprintf("%s: %v", line, err), err == nil && sub.name == "run")
		_, err = in.locate(sub)
		if err.Error() != "a:1" || in.output != "json" || strings.Join(in.args, " ") != "/x" ||
			strings.Join(in.command, " ") != "c -o text -store b" {
			t.Errorf("%s: got %+v", line, in)
		}
	}
}

// A password comes from the environment or a file, because every user can read a command line. No output contains it, not even an error
// about a wrong URL.
func TestPasswordsAreNeitherTakenFromTheCommandLineNorShown(t *testing.T) {
	for _, u := range []string{
		"odd://user:hunter2@host", "odd://:hunter2@host:1,other:2/app", "even://host/app?x=1&sslpassword=hunter2", "odd://u:hunter2%25%40@h",
		`odd://u:"hunter2\@h`, "odd://a@b:hunter2@h",
	} {
		for _, c := range []struct{ args, env, want string }{
			{"-store " + u + " ls", "", "-store has a password, and every user of the machine can read a command line; set TIERLOCK_STORE"},
			{"-store " + u + " ls", "", "put a number into TIERLOCK_AUTH or a file for -auth-file"},
			{"ls", u, "cannot read"},
			{"ls", u, "xxxxx"},
		} {
			t.Setenv(storeVar, c.env)
			var out, err bytes.Buffer
			need.Equal(t, "the status of tierlock "+c.args, Main(plain(), strings.Fields(c.args), &out, &err), exitUsage)
			need.Has(t, "with "+u+" in the environment, tierlock "+c.args, err.String(), c.want)
			need.That(t, "it shows a password: "+err.String(), !strings.Contains(err.String(), "hunter2"))
		}
	}
	for u, want := range map[string]string{
		"odd://u:hun/ter2@host": "write @ as %40, and / as %2F", "odd://u:hunter2%@host": "write this % as %25",
		"hunter2@host": "has no scheme",
	} {
		t.Setenv(storeVar, u)
		_, err := new(Address).find(plain())
		need.Has(t, "of "+u, err.Error(), want)
		need.That(t, "it shows a password: "+err.Error(), !strings.Contains(err.Error(), "ter2"))
	}
}

// A user from -auth-file or TIERLOCK_AUTH takes precedence over the one in the URL. Without these, the user in the URL counts, unescaped.
func TestLoginIsOfTheURLUnlessItIsGivenApart(t *testing.T) {
	t.Setenv(storeVar, "odd://us%40er:se%3Acret@host:1,other:2/a?b=c")
	a := new(Address)
	_, err := a.find(plain())
	need.Has(t, "the error of the store", err.Error(), "cannot read")
	need.Equal(t, "servers", a.Servers, "host:1,other:2/a?b=c")
	for auth, want := range map[string]string{"": "us@er se:cret", "other:word:2\n": "other word:2", ":word": " word"} {
		t.Setenv("TIERLOCK_AUTH", auth)
		login := need.Get(a.Login())(t)
		password, _ := login.Password()
		need.Equal(t, "with "+auth, login.Username()+" "+password, want)
	}
}

// The error for a subcommand of another store names that store.
func TestTaskOfAnotherStoreIsRefused(t *testing.T) {
	stores := plain()
	stores[0].Check = func(*Address) error { return nil }
	var out, err bytes.Buffer
	need.Equal(t, "the status", Main(stores, []string{"-store", "plain://a:1", "paint"}, &out, &err), exitUsage)
	need.Equal(t, "it says", err.String(), "tierlock: paint is for Odd, such as odd://host:2; the store is Plain\n")
}
