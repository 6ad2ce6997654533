package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tierlock/tierlock/stress/internal/report"
	"github.com/tierlock/tierlock/stress/internal/report/page"
	"github.com/tierlock/tierlock/stress/internal/store"
)

// document is the file with the tables of all stores. The tables of each store are between two marks of their own.
const document = "measured.md"

// write writes the figures, tables and pictures into dir, which it creates if necessary.
func (b *benchmark) write(dir string, p plan) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Each lock gets its own line, so that a diff is readable.
	data = []byte(strings.ReplaceAll(string(data), `{"lock"`, "\n"+`{"lock"`))
	return errors.Join(os.WriteFile(filepath.Join(dir, p.name()+".json"), append(data, '\n'), 0o644), b.show(dir, p))
}

// show writes the tables into the document. For ZooKeeper it also writes the picture.
func (b *benchmark) show(dir string, p plan) error {
	name := filepath.Join(dir, document)
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.WriteFile(name, []byte(replaced(string(text), p.name(), b.tables(p))), 0o644); err != nil || p.store != store.ZooKeeper {
		return err
	}
	picture, err := page.Picture("Sections of 1 ms, 4 processes × 50 goroutines", b.bars(longer, p.locks))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "bench.svg"), []byte(picture), 0o644)
}

// replaced returns a document with new tables between the marks of a target. If the document does not have these marks, replaced appends
// them and the tables.
func replaced(document, target, tables string) string {
	from, to := "<!-- from here on `make "+target+"` writes -->\n", "<!-- to here -->\n"
	before, rest, _ := strings.Cut(document, from)
	_, after, _ := strings.Cut(rest, to)
	return before + from + tables + to + after
}

// tables returns the results as Markdown tables for people.
func (b *benchmark) tables(p plan) string {
	var t strings.Builder
	row := func(columns ...string) { fmt.Fprintf(&t, "| %s |\n", strings.Join(columns, " | ")) }
	var facts []string
	for _, f := range b.Environment.Facts() {
		facts = append(facts, f.Name+" "+f.Value)
	}
	fmt.Fprintf(&t, "\n`make %s` took %s: %d rounds, runs of %s or longer. %s; %s.\n", p.name(), report.Duration(time.Duration(b.Took)),
		b.Rounds, report.Duration(time.Duration(b.Duration)), strings.Join(facts, ", "), b.Library)
	if len(b.Busy) > 0 {
		fmt.Fprintf(&t, "**Other programs used the processors** before rounds %s.\n", strings.Trim(fmt.Sprint(b.Busy), "[]"))
	}
	t.WriteByte('\n')
	heads, rule := []string{"work", "lock"}, "|---|---|"
	for _, f := range figures {
		if f.text != nil {
			heads, rule = append(heads, f.name), rule+"---|"
		}
	}
	row(heads...)
	t.WriteString(rule + "\n")
	for _, m := range b.Works {
		name := m.Work
		for _, s := range m.Locks {
			cells := []string{name, s.Lock}
			for _, f := range figures {
				if f.text != nil {
					cells = append(cells, span(s.Figures[f.name], f.text))
				}
			}
			row(cells...)
			name = ""
		}
	}
	t.WriteString("\n| work | lock | figure | goal | measured | by every run |\n|---|---|---|---|---|---|\n")
	for _, g := range p.goals {
		row(g.judge(b).columns()...)
	}
	t.WriteByte('\n')
	return t.String()
}

func (b *benchmark) print(w io.Writer, goals []goal) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, g := range goals {
		fmt.Fprintln(table, strings.Join(g.judge(b).columns(), "\t"))
	}
	return table.Flush()
}

// bars returns the medians of a workload for each lock, with the same values as in the tables.
func (b *benchmark) bars(work string, locks []contestant) (bars []page.Lock) {
	for _, c := range locks {
		rates, waits := b.figure(work, c.name, perSecond), b.figure(work, c.name, waitP99)
		if len(rates) > 0 {
			bars = append(bars, page.Lock{
				Name: c.name, Ours: strings.HasPrefix(c.name, asItComes), PerSecond: median(rates), WaitP99: time.Duration(median(waits)),
			})
		}
	}
	return bars
}
