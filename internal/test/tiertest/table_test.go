package tiertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/test/need"
)

func TestASummaryHasARowForEachGroupAndSaysWhatIsNotKept(t *testing.T) {
	var table Table
	for _, g := range groups {
		for _, p := range g.promises {
			table = append(table, Row{p.name, g.text, p.text, Kept})
		}
	}
	dir := t.TempDir()
	full, part, doc := filepath.Join(dir, "full"), filepath.Join(dir, "part"), filepath.Join(dir, "doc")
	write := func(file, text string) { need.OK(t, os.WriteFile(file, []byte(text), 0o644)) }
	write(full, table.markdown("Full"))
	table[len(table)-1].Result = NotAvailable + ": why"
	write(part, table.markdown("Part"))
	table.Record(t, "Part", part)
	last := groups[len(groups)-1]
	var want strings.Builder
	want.WriteString("above\n<!-- promises -->\n| | [Full](full) | [Part](part) |\n|---|---|---|\n")
	for _, g := range groups[:len(groups)-1] {
		want.WriteString("| " + g.text + " | kept | kept |\n")
	}
	want.WriteString("| " + last.text + " | kept | kept, except: " + last.promises[len(last.promises)-1].text + " (not available: why) |\n")
	want.WriteString("<!-- /promises -->\nbelow\n")
	write(doc, want.String())
	Summarize(t, doc, full, part)
}
