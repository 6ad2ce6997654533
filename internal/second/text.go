package second

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText limits the bytes that are shown of a text from a store, and the length of a label that is set here.
const maxText = 256

// Text shortens a text that another program may have put into a store to its first 256 bytes, and "…" if there are more. Text then
// applies [Clean], so the result has one KiB at most. Each tier applies it to all texts of a [Contender], so that users log, and
// operators see, one short line of plain text.
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

// Clean escapes everything that is not plainly printable: control characters, which a terminal obeys, line ends, characters that change
// the direction of text, and invalid encodings.
func Clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// checkLabel returns an error for a label that would be displayed differently from how it was set.
func checkLabel(label string) error {
	switch {
	case len(label) > maxText:
		return fmt.Errorf("label of %d bytes: more than %d", len(label), maxText)
	case Clean(label) != label:
		return fmt.Errorf("label has a character that is not printed: %s", Clean(label))
	}
	return nil
}
