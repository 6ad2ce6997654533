package second

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is how many bytes count of what a process says of itself, and of a label that is set here.
const maxText = 256

// Text shortens a text that another program may have put into a store: the first 256 bytes, and "…" if there are more, as [Clean]
// has them: one KiB at most. Each tier has it of all texts of a [Contender], so that what users log and operators see is one line of
// plain text, and short.
func Text(s string) string {
	if len(s) <= maxText {
		return Clean(s)
	}
	end := maxText
	for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return Clean(s[:end]) + "…"
}

// Clean spells out all that is not plainly printed: control characters, which a terminal obeys, what ends a line, what changes the
// direction of text, and what is no text.
func Clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// checkLabel reports a label that others would not see as it is.
func checkLabel(label string) error {
	switch {
	case len(label) > maxText:
		return fmt.Errorf("label of %d bytes: more than %d", len(label), maxText)
	case Clean(label) != label:
		return fmt.Errorf("label has a character that is not printed: %s", Clean(label))
	}
	return nil
}
