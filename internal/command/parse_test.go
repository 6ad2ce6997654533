package command

import (
	"bytes"
	"strings"
	"testing"
)

// A command line that is wrong runs nothing, exits 64, and says what is wrong, where, and what helps.
func TestWrongCommandLines(t *testing.T) {
	t.Setenv("TIERLOCK_ZK", "")
	for _, c := range []struct{ line, want string }{
		{"", "no subcommand; tierlock help lists them"},
		{"-x run", "not defined: -x; tierlock help lists the flags"},
		{"rum /x", `no subcommand "rum"`},
		{"help rum", `no subcommand "rum"`},
		{"run -w 5 /x -- true", `"5" for flag -w: want a duration such as`},
		{"run -w 0s /x -- true", "too short"},
		{"run /x -grace -1s -- true", "too short"},
		{"run -q /x -- true", "not defined: -q; tierlock help run lists the flags"},
		{"-o xml run /x -- true", "want text or json"},
		{"run /x -o xml -- true", "want text or json"},
	} {
		var out, err bytes.Buffer
		if got := Main(strings.Fields(c.line), &out, &err); got != exitUsage {
			t.Errorf("tierlock %s: exits %d, want %d", c.line, got, exitUsage)
		}
		if text := err.String(); !strings.HasPrefix(text, "tierlock: ") || !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 {
			t.Errorf("tierlock %s: says %q, want a line with %q", c.line, text, c.want)
		}
		if out.Len() > 0 {
			t.Errorf("tierlock %s: prints %q", c.line, &out)
		}
	}
}

// Help is no error. All that is there is listed, and each subcommand explains itself with an example.
func TestHelp(t *testing.T) {
	ask := func(line string) string {
		var out, err bytes.Buffer
		if got := Main(strings.Fields(line), &out, &err); got != exitOK || err.Len() > 0 {
			t.Errorf("tierlock %s: exits %d, says %q", line, got, &err)
		}
		return out.String()
	}
	all := ask("help")
	for _, line := range []string{"-h", "--help"} {
		if ask(line) != all {
			t.Errorf("tierlock %s differs from tierlock help", line)
		}
	}
	for _, sub := range subcommands() {
		if !sub.hidden && !strings.Contains(all, "\n  "+sub.name+" ") {
			t.Errorf("help does not list %s", sub.name)
		}
		text := ask("help " + sub.name)
		if !sub.hidden && !strings.Contains(text, "\n  tierlock "+sub.name+" ") {
			t.Errorf("help %s has no example", sub.name)
		}
		for _, line := range []string{sub.name + " -h", "-o json " + sub.name + " /x --help"} {
			if ask(line) != text {
				t.Errorf("tierlock %s differs from tierlock help %s", line, sub.name)
			}
		}
	}
}

// Flags that all subcommands share are taken anywhere before "--"; what follows that is left alone.
func TestFlagsAnywhere(t *testing.T) {
	for _, line := range []string{
		"-zk a:1 -o json run /x -- c -o text -zk b",
		"run -zk a:1 -o json /x -- c -o text -zk b",
		"run /x -zk a:1 -o json -- c -o text -zk b",
		"-zk z:9 run -zk a:1 /x -o json -- c -o text -zk b",
	} {
		in := &invocation{}
		sub, err := in.parse(strings.Fields(line))
		if err != nil || sub.name != "run" {
			t.Fatalf("%s: %v", line, err)
		}
		if in.zk.connect != "a:1" || in.output != "json" || strings.Join(in.args, " ") != "/x" || strings.Join(in.command, " ") != "c -o text -zk b" {
			t.Errorf("%s: got %+v", line, in)
		}
	}
}

// No secret is quoted in an error.
func TestCredentialsAreNotQuoted(t *testing.T) {
	t.Setenv("TIERLOCK_AUTH", "digest:a:b\n\nhunter2")
	_, err := (&zooKeeper{}).auth()
	if err == nil || status(err) != exitUsage || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("got %v, want a usage error about line 3", err)
	}
}
