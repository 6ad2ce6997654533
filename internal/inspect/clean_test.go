package inspect

import "testing"

func TestCleanLeavesNothingForATerminalToObey(t *testing.T) {
	for in, want := range map[string]string{
		"größer 漢字 \"x\" <b>": "größer 漢字 \"x\" <b>", "\x1b[2J\a": `\x1b[2J\a`, "a\nb\tc": `a\nb\tc`, "\u202eabc": `\u202eabc`, "\xff\xfe": `\xff\xfe`, "\u009b31m": `\u009b31m`,
	} {
		if got := Clean(in); got != want {
			t.Errorf("Clean(%q): got %q, want %q", in, got, want)
		}
	}
}
