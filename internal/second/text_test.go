package second

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestCleanLeavesNothingForATerminalToObey(t *testing.T) {
	for in, want := range map[string]string{
		"größer 漢字 \"x\" <b>": "größer 漢字 \"x\" <b>", "\x1b[2J\a": `\x1b[2J\a`, "a\nb\tc": `a\nb\tc`, "\u202eabc": `\u202eabc`,
		"\xff\xfe": `\xff\xfe`, "\u009b31m": `\u009b31m`, "a\u2028b\u2029c\u0085": `a\u2028b\u2029c\u0085`,
		"\u2066a\u2069\u200b": `\u2066a\u2069\u200b`,
	} {
		need.Equal(t, in, Clean(in), want)
	}
}

func FuzzTextIsAShortLineThatIsPrinted(f *testing.F) {
	for _, s := range []string{"", "billing", strings.Repeat("x", maxText), strings.Repeat("x", 1<<20), strings.Repeat("漢", 200),
		strings.Repeat("\x80", 300), strings.Repeat("\U000e0001", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := Text(s)
		need.AtMost(t, fmt.Sprintf("bytes of a text of %d", len(s)), len(text), 4*maxText+len("…"))
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", text)
		}
		need.That(t, fmt.Sprintf("the label %q is %q to others", s, text), checkLabel(s) != nil || text == s)
	})
}

func TestLongTextEndsWithAWholeCharacter(t *testing.T) {
	for s, want := range map[string]string{
		strings.Repeat("x", 255) + "漢字":   strings.Repeat("x", 255) + "…",
		strings.Repeat("x", 253) + "漢字":   strings.Repeat("x", 253) + "漢…",
		"x" + strings.Repeat("\x80", 300): "x" + strings.Repeat(`\x80`, 251) + "…", // up to four bytes are cut from an invalid text
	} {
		need.Equal(t, s, Text(s), want)
	}
}

func TestLabelsThatOthersWouldSeeOtherwiseAreRefused(t *testing.T) {
	for label, fine := range map[string]bool{
		"night run": true, strings.Repeat("x", 256): true, strings.Repeat("x", 257): false,
		"\xff": false, "a\nb": false, "a\u2028b": false, "\u202ea": false,
	} {
		need.Equal(t, fmt.Sprintf("%q is fine", label), checkLabel(label) == nil, fine)
	}
}
