package interop_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock"
	"github.com/tierlock/tierlock/internal/waittest"
	"github.com/tierlock/tierlock/zklock"
)

// kinds of drivers by their names in docs/interop.md.
var kinds = map[string]string{
	"tierlock":                 "tier",
	"tierlock WithKazoo":       "tier-kazoo",
	"tierlock write":           "tier-write",
	"tierlock write WithKazoo": "tier-write-kazoo",
	"tierlock read":            "tier-read",
	"tierlock read WithKazoo":  "tier-read-kazoo",
	"zk.Lock":                  "zk",
	"Curator mutex":            "curator",
	"Curator write":            "curator-write",
	"Curator read":             "curator-read",
	"kazoo Lock":               "kazoo-default",
	"kazoo WriteLock":          "kazoo-write",
	"kazoo ReadLock":           "kazoo-read",
	"kazoo Lock +":             "kazoo",
	"kazoo WriteLock +":        "kazoo-write-extra",
	"kazoo ReadLock +":         "kazoo-read-extra",
}

// A table says of each kind in its first column for which of those in its head it waits.
type table struct {
	head []string
	rows []row
}

type row struct {
	kind  string
	waits []bool
}

// readTables returns the tables of docs/interop.md, which have the same rows.
func readTables(t *testing.T) (all []*table) {
	t.Helper()
	text, err := os.ReadFile("../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	kindOf := func(cell string) string {
		kind := kinds[strings.TrimSpace(cell)]
		if kind == "" {
			t.Fatalf("the table has an unknown lock %q", cell)
		}
		return kind
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "`", "")) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok || strings.HasPrefix(line, "-") {
			continue
		}
		cells := strings.Split(strings.TrimSuffix(line, "|"), "|")
		if len(all) == 0 && strings.TrimSpace(cells[0]) != "waits for" {
			continue // another table
		}
		if strings.TrimSpace(cells[0]) == "waits for" {
			head := new(table)
			for _, cell := range cells[1:] {
				head.head = append(head.head, kindOf(cell))
			}
			all = append(all, head)
			continue
		}
		r := row{kind: kindOf(cells[0])}
		for _, cell := range cells[1:] {
			switch strings.TrimSpace(cell) {
			case "yes":
				r.waits = append(r.waits, true)
			case "no":
				r.waits = append(r.waits, false)
			default:
				t.Fatalf("the table has %q in the line of %s", cell, r.kind)
			}
		}
		last := all[len(all)-1]
		if len(r.waits) != len(last.head) {
			t.Fatalf("the table has %d cells in the line of %s, and %d in its head", len(r.waits), r.kind, len(last.head))
		}
		last.rows = append(last.rows, r)
	}
	for _, one := range all {
		if len(one.rows) != len(kinds) {
			t.Fatalf("the table has %d lines, want %d", len(one.rows), len(kinds))
		}
	}
	return all
}

// Several chunks of rows have their turn side by side, on paths and with holders of their own.
func TestTheyWaitForOneAnotherAsDocumented(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	for _, one := range readTables(t) {
		for chunk := range slices.Chunk(one.rows, 6) {
			name := one.head[0] + "/" + chunk[0].kind
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e := e.below(name)
				e.keepPath(t)
				holders := launch(t, e, sessionTimeout, one.head...)
				for _, r := range chunk {
					d := launch(t, e, sessionTimeout, r.kind)[0]
					for i, holder := range holders {
						holder.acquire(t)
						if r.waits[i] {
							d.waits(t, e, holder)
						} else {
							d.passes(t, holder)
						}
						e.awaitChildren(t, 0)
					}
					d.dismiss()
				}
			})
		}
	}
}

// waits checks that the driver gets the lock when the holder releases it, not before.
func (d *driver) waits(t *testing.T, e *ensemble, holder *driver) {
	t.Helper()
	d.order(t, "acquire")
	e.awaitChildren(t, holder.znodes()+d.znodes())
	time.Sleep(200 * time.Millisecond) // for the driver to look at the queue
	if len(d.answers) > 0 {
		t.Errorf("%s does not wait for %s: the documentation says that it does", d.kind, holder.kind)
	}
	holder.release(t)
	d.answer(t)
	d.release(t)
}

// passes checks that the driver gets the lock although the holder has it.
func (d *driver) passes(t *testing.T, holder *driver) {
	t.Helper()
	if d.do(t, "acquire 10000").TimedOut {
		t.Errorf("%s waits for %s: the documentation says that it does not", d.kind, holder.kind)
	} else {
		d.release(t)
	}
	holder.release(t)
}

// znodes is the length of the queue with this driver alone.
func (d *driver) znodes() int {
	if strings.HasPrefix(d.kind, "tier") && strings.HasSuffix(d.kind, "-kazoo") {
		return 2
	}
	return 1
}

func TestReadLockOfKazooSticksOnlyBefore29(t *testing.T) {
	t.Parallel()
	for kind, opts := range map[string][]tierlock.Option{
		"kazoo-read":       {zklock.WithKazoo()},
		"kazoo-read-extra": nil,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := newEnsemble(t)
			e.keepPath(t)
			reader := launch(t, e, sessionTimeout, kind)[0]
			znodes := 1 + len(opts)
			first, second := e.tier(t, opts...), e.tier(t, opts...)
			hold := acquire(t, first)
			reader.order(t, "acquire 3000")
			e.awaitChildren(t, znodes+1)
			behind := start(waittest.Soon(t), second)
			e.awaitChildren(t, znodes+1+znodes)
			waittest.Release(t, hold)

			stuck := reader.answer(t).TimedOut
			if want := kazooBefore(t, 2, 9); stuck != want {
				t.Errorf("ReadLock waits for the node behind it: got %t, want %t", stuck, want)
			}
			if !stuck {
				reader.release(t)
			}
			waittest.Release(t, behind.granted(t))
			e.awaitChildren(t, 0)
		})
	}
}

// kazooBefore reports whether kazoo is older than a version.
func kazooBefore(t *testing.T, major, minor int) bool {
	t.Helper()
	out, err := exec.Command(python, "-c", "import kazoo.version; print(kazoo.version.__version__)").Output()
	if err != nil {
		t.Fatal(err)
	}
	var x, y int
	if _, err := fmt.Sscanf(string(out), "%d.%d", &x, &y); err != nil {
		t.Fatalf("version of kazoo %q: %v", out, err)
	}
	return x < major || x == major && y < minor
}
