package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/tierlock/tierlock/cmd/tierlock/internal/inspect"
	"github.com/tierlock/tierlock/internal/second"
)

// A table has columns of text that are aligned. Its cells are escaped, because other programs have written much of the content of nodes,
// and a terminal obeys control sequences.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = clean(c)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func (t table) end() error { return t.w.Flush() }

func clean(s string) string { return second.Clean(s) }

// The function age formats a duration. The text is short enough for a column.
func age(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d/time.Second%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d/time.Minute%60)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// The function owner names the owner of a node, from the description that the owner has given.
func owner(c *inspect.Contender) string {
	switch {
	case c.PID != 0 || c.Host != "":
		return strings.TrimSpace(fmt.Sprintf("%s pid %d %s", c.Host, c.PID, c.Label))
	case c.Content != "":
		return `"` + c.Content + `"`
	case !c.Readable:
		return "(may not be read)"
	}
	return "-"
}

// The function described returns the kind and the owner of a contender.
func described(c *inspect.Contender) string { return c.KindName() + " " + owner(c) }

// writeJSON prints one value as JSON. If indent is not "", the JSON is indented. writeJSON also escapes control sequences for terminals,
// because JSON leaves some of them unchanged.
func writeJSON(w io.Writer, value any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	var safe strings.Builder
	for _, r := range text.String() {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			safe.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&safe, `\u%04x`, unit)
			}
		}
	}
	_, err := io.WriteString(w, safe.String())
	return err
}
