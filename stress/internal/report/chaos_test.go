package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/need"
)

func TestInterruptedChaosNeedsNoProgress(t *testing.T) {
	c := &Chaos{Interrupted: true, AfterFaults: 0, Stalls: 1}
	for _, v := range c.violations() {
		if v.n != 0 {
			t.Errorf("got %d %s", v.n, v.what)
		}
	}
}

func TestDrawingOfTheHistoryIsShown(t *testing.T) {
	dir := t.TempDir()
	r := &Result{
		Chaos: &Chaos{History: "Illegal", Drawing: filepath.Join(dir, "drawn.html")}, Environment: &Environment{},
	}
	name := filepath.Join(dir, "page.html")
	need.OK(t, r.WritePage(name))
	page, err := os.ReadFile(name)
	if err != nil || !strings.Contains(string(page), `<a href="drawn.html">`) {
		t.Errorf("on the page: no link, %v", err)
	}
	for _, asJSON := range []bool{false, true} {
		var text strings.Builder
		if err := r.Write(&text, asJSON); err != nil || !strings.Contains(text.String(), r.Chaos.Drawing) {
			t.Errorf("JSON %t: %v\n%s", asJSON, err, &text)
		}
		r.Chaos.Drawing, text = "", strings.Builder{}
		if err := r.Write(&text, asJSON); err != nil || strings.Contains(text.String(), "draw") {
			t.Errorf("without a drawing, JSON %t: %v\n%s", asJSON, err, &text)
		}
		r.Chaos.Drawing = filepath.Join(dir, "drawn.html")
	}
}
