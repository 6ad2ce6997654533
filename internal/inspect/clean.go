package inspect

import (
	"strconv"
	"strings"
	"unicode"
)

// Clean spells out all that is not plainly printed: control characters, which a terminal obeys, what
// changes the direction of text, and what is no text. Names and contents of nodes are other
// people's.
func Clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
