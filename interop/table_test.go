package interop_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/zklock"
)

// kinds of drivers by their names in docs/interop.md.
var kinds = map[string]string{
	"tierlock":           "tier",
	"tierlock WithKazoo": "tier-kazoo",
	"zk.Lock":            "zk",
	"Curator mutex":      "curator",
	"Curator write":      "curator-write",
	"Curator read":       "curator-read",
	"kazoo Lock":         "kazoo-default",
	"kazoo WriteLock":    "kazoo-write",
	"kazoo ReadLock":     "kazoo-read",
	"kazoo Lock +":       "kazoo",
	"kazoo WriteLock +":  "kazoo-write-extra",
	"kazoo ReadLock +":   "kazoo-read-extra",
}

// A row says for which of the kinds in the head of the table a kind waits.
type row struct {
	kind  string
	waits []bool
}

// readTable returns the only table of docs/interop.md.
func readTable(t *testing.T) (head []string, rows []row) {
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
		if head == nil {
			for _, cell := range cells[1:] {
				head = append(head, kindOf(cell))
			}
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
		if len(r.waits) != len(head) {
			t.Fatalf("the table has %d cells in the line of %s, and %d in its head", len(r.waits), r.kind, len(head))
		}
		rows = append(rows, r)
	}
	if len(rows) != len(kinds) {
		t.Fatalf("the table has %d lines, want %d", len(rows), len(kinds))
	}
	return head, rows
}

func TestTheyWaitForOneAnotherAsDocumented(t *testing.T) {
	head, rows := readTable(t)
	e := newEnsemble(t)
	e.keepPath(t)
	holders := launch(t, e, sessionTimeout, head...)
	for _, r := range rows {
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
	if d.kind == "tier-kazoo" {
		return 2
	}
	return 1
}

func TestReadLockOfKazooSticksOnlyBefore29(t *testing.T) {
	for kind, opts := range map[string][]zklock.Option{
		"kazoo-read":       {zklock.WithKazoo()},
		"kazoo-read-extra": nil,
	} {
		t.Run(kind, func(t *testing.T) {
			e := newEnsemble(t)
			e.keepPath(t)
			reader := launch(t, e, sessionTimeout, kind)[0]
			znodes := 1 + len(opts)
			first, second := e.tier(t, opts...), e.tier(t, opts...)
			hold := acquire(t, first)
			reader.order(t, "acquire 3000")
			e.awaitChildren(t, znodes+1)
			behind := start(soon(t), second)
			e.awaitChildren(t, znodes+1+znodes)
			release(t, hold)

			stuck := reader.answer(t).TimedOut
			if want := kazooBefore(t, 2, 9); stuck != want {
				t.Errorf("ReadLock waits for the node behind it: got %t, want %t", stuck, want)
			}
			if !stuck {
				reader.release(t)
			}
			release(t, behind.granted(t))
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
