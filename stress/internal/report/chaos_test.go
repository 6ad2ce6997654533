package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlock/tierlock/internal/need"
)

func TestInterruptedChaosNeedsNoProgress(t *testing.T) {
	c := &Chaos{Interrupted: true, AfterFaults: 0, Stalls: 1}
	for _, v := range c.violations() {
		need.Equal(t, "times "+v.what, v.n, 0)
	}
}

func TestDrawingOfTheHistoryIsShown(t *testing.T) {
	dir := t.TempDir()
	r := &Result{
		Chaos: &Chaos{History: "Illegal", Drawing: filepath.Join(dir, "drawn.html")}, Environment: &Environment{},
	}
	name := filepath.Join(dir, "page.html")
	need.OK(t, r.WritePage(name))
	need.Has(t, "the page", string(need.Get(os.ReadFile(name))(t)), `<a href="drawn.html">`)
	for _, asJSON := range []bool{false, true} {
		var text strings.Builder
		need.OK(t, r.Write(&text, asJSON))
		need.Has(t, fmt.Sprintf("JSON %t", asJSON), text.String(), r.Chaos.Drawing)
		r.Chaos.Drawing, text = "", strings.Builder{}
		need.OK(t, r.Write(&text, asJSON))
		need.That(t, "a drawing where there is none: "+text.String(), !strings.Contains(text.String(), "draw"))
		r.Chaos.Drawing = filepath.Join(dir, "drawn.html")
	}
}
