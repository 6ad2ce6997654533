package second

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText is the greatest number of bytes that are shown of a text from a store. It is also the greatest length of a label that a program
// can set.
const maxText = 256

// Text makes a text from a store safe to show, because any program may have written it. It keeps the first 256 bytes, and appends "…" if
// there are more. It applies [Clean] to these bytes, so the result has one KiB at most. Each tier applies Text to all texts of a
// [Contender]. Logs and displays therefore get one short line of plain text.
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

// Clean escapes all characters that are not printable. These are control characters, which a terminal would execute, line ends, characters
// that change the direction of text, and invalid encodings.
func Clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// checkLabel returns an error for a label that [Text] would change.
func checkLabel(label string) error {
	switch {
	case len(label) > maxText:
		return fmt.Errorf("label of %d bytes: want at most %d", len(label), maxText)
	case Clean(label) != label:
		return fmt.Errorf("label has a character that is not printable: %s", Clean(label))
	}
	return nil
}
