package interop_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlock/tierlock/internal/test/interop"
	"github.com/tierlock/tierlock/internal/test/interopdoc"
	"github.com/tierlock/tierlock/internal/test/need"
	"github.com/tierlock/tierlock/internal/test/waittest"
	"github.com/tierlock/tierlock/tier"
	"github.com/tierlock/tierlock/zklock"
)

// The map kinds returns the driver for each name in docs/interop.md.
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

// kindOf returns the driver for the name of a lock in the document.
func kindOf(t *testing.T, name string) string {
	t.Helper()
	kind, ok := kinds[name]
	need.Must(t, fmt.Sprintf("the table has an unknown lock %q", name), ok)
	return kind
}

// The rows of the table are split into chunks that run in parallel. Each chunk has its own paths and holders.
func TestTheyWaitForOneAnotherAsDocumented(t *testing.T) {
	t.Parallel()
	e := newEnsemble(t)
	one := interopdoc.Read(t, "../../../docs/interop.md")
	need.Must(t, fmt.Sprintf("the table has %d lines, want %d", len(one.Rows), len(kinds)), len(one.Rows) == len(kinds))
	var head []string
	for _, name := range one.Head {
		head = append(head, kindOf(t, name))
	}
	for chunk := range slices.Chunk(one.Rows, 6) {
		name := head[0] + "/" + kindOf(t, chunk[0].Name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := e.below(name)
			e.keepPath(t)
			holders := launch(t, e, sessionTimeout, head...)
			for _, r := range chunk {
				d := launch(t, e, sessionTimeout, kindOf(t, r.Name))[0]
				for i, holder := range holders {
					holder.acquire(t)
					if r.Waits[i] {
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

// driver.waits checks that the driver gets the lock when the holder releases it, and not earlier.
func (d *driver) waits(t *testing.T, e *ensemble, holder *driver) {
	t.Helper()
	d.order(t, "acquire")
	e.awaitChildren(t, holder.znodes()+d.znodes())
	time.Sleep(200 * time.Millisecond) // in this time, the driver reads the queue
	need.That(t, d.kind+" does not wait for "+holder.kind+": the documentation says that it does", len(d.answers) == 0)
	holder.release(t)
	d.answer(t)
	d.release(t)
}

// The method passes checks that the driver gets the lock although the holder has it.
func (d *driver) passes(t *testing.T, holder *driver) {
	t.Helper()
	if d.do(t, "acquire 10000").TimedOut {
		t.Errorf("%s waits for %s: the documentation says that it does not", d.kind, holder.kind)
	} else {
		d.release(t)
	}
	holder.release(t)
}

// The method znodes returns how many znodes the driver has in the queue.
func (d *driver) znodes() int {
	if strings.HasPrefix(d.kind, "tier") && strings.HasSuffix(d.kind, "-kazoo") {
		return 2
	}
	return 1
}

func TestReadLockOfKazooSticksOnlyBefore29(t *testing.T) {
	t.Parallel()
	for kind, opts := range map[string][]tier.RegistryOption{
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
			need.Equal(t, "ReadLock waits for the node behind it", stuck, kazooBefore(t, 2, 9))
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
	out := need.Get(exec.Command(interop.Python, "-c", "import kazoo.version; print(kazoo.version.__version__)").Output())(t)
	var x, y int
	_, err := fmt.Sscanf(string(out), "%d.%d", &x, &y)
	need.Must(t, fmt.Sprintf("version of kazoo %q: %v", out, err), err == nil)
	return x < major || x == major && y < minor
}
